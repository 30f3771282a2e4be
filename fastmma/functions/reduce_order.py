"""Proto."""
from __future__ import annotations
import numpy as np
from fastmma.functions.reduce_plan import Plan

def halves(values, combine, axis):
    """values: tuple of arrays"""
    while values[0].shape[axis] > 1:
        half = values[0].shape[axis] // 2
        lo = tuple(np.take(v, range(half), axis) for v in values)
        hi = tuple(np.take(v, range(half, 2*half), axis) for v in values)
        values = combine(lo, hi)
    return tuple(np.squeeze(v, axis) for v in values)

def neighbours(values, combine, axis):
    while values[0].shape[axis] > 1:
        n = values[0].shape[axis]
        lo = tuple(np.take(v, range(0, n, 2), axis) for v in values)
        hi = tuple(np.take(v, range(1, n, 2), axis) for v in values)
        values = combine(lo, hi)
    return tuple(np.squeeze(v, axis) for v in values)

LANES = "halves"
XFIRST = True
def xred(values, combine):
    if LANES == "halves":
        return halves(values, combine, -1)
    while values[0].shape[-1] > 32:
        half = values[0].shape[-1] // 2
        values = combine(tuple(v[..., :half] for v in values), tuple(v[..., half:] for v in values))
    return neighbours(values, combine, -1)

def block(values, combine, p, xfirst):
    steps = [("x", p.along_x), ("y", p.along_y)]
    if not xfirst: steps = steps[::-1]
    if not p.along_x:
        values = tuple(v[..., 0] for v in values) # (outputs, blocks, height)
        return halves(values, combine, -1) if p.along_y else tuple(v[..., 0] for v in values)
    if not p.along_y:
        return xred(tuple(v[..., 0, :] for v in values), combine)
    if xfirst:
        return halves(xred(values, combine), combine, -1)
    return xred(halves(values, combine, -2), combine)

def reduce_rows(x, p: Plan, ops):
    """x (outputs, inputs) f32"""
    outputs, inputs = x.shape
    W = p.width if p.along_x else 1
    H = p.height if p.along_y else 1
    step = W * H * p.blocks
    if p.vector == 1:
        acc = thread_single(x, step, p.sums, ops)
    else:
        V = p.vector
        shifts = np.arange(outputs) * inputs % V
        acc = None
        for s in np.unique(shifts):
            rows = np.flatnonzero(shifts == s)
            part = thread_vector(x[rows], step, V, int(s), ops)
            if acc is None: acc = tuple(np.empty((outputs, *v.shape[1:]), v.dtype) for v in part)
            for a, v in zip(acc, part): a[rows] = v
    acc = tuple(v.reshape(outputs, p.blocks, H, W) for v in acc)
    # block
    if p.along_x and p.along_y: b = block(acc, ops.combine, p, XFIRST)
    elif p.along_x: b = xred(tuple(v[:, :, 0] for v in acc), ops.combine)
    elif p.along_y: b = halves(tuple(v[..., 0] for v in acc), ops.combine, -1)
    else: b = tuple(v[..., 0, 0] for v in acc)
    if p.blocks > 1:
        n = (p.width if p.along_x else 1) * p.height
        vals = ops.ident((outputs, n))
        for start in range(0, p.blocks, n):
            part = tuple(v[:, start:start+n] for v in b)
            k = part[0].shape[1]
            new = ops.combine(tuple(v[:, :k] for v in vals), part)
            for v, w in zip(vals, new): v[:, :k] = w
        vals = tuple(v.reshape(outputs, p.height, -1) for v in vals)
        if p.along_x: b = xred(halves(vals, ops.combine, -2), ops.combine)
        else: b = halves(tuple(v[..., 0] for v in vals), ops.combine, -1)
    else:
        b = tuple(v[:, 0] for v in b)
    return ops.project(b)

def thread_single(x, step, sums, ops):
    outputs, inputs = x.shape
    J = -(-inputs // step)
    lists = []
    for i in range(sums):
        acc = ops.ident((outputs, step))
        for j in range(i, J, sums):
            part = x[:, j*step:(j+1)*step]
            acc = update(acc, part, ops)
        lists.append(acc)
    acc = lists[0]
    for l in lists[1:]: acc = ops.combine(acc, l)
    return acc

def update(acc, part, ops):
    k = part.shape[1]
    if k == acc[0].shape[1]: return ops.reduce(acc, part)
    new = ops.reduce(tuple(v[:, :k] for v in acc), part)
    for v, w in zip(acc, new): v[:, :k] = w
    return acc

def thread_vector(x, step, V, shift, ops):
    outputs, inputs = x.shape
    lists = [ops.ident((outputs, step)) for _ in range(V)]
    head = (V - shift) % V
    if head:
        new = ops.reduce(tuple(v[:, shift:V] for v in lists[0]), x[:, :head])
        for v, w in zip(lists[0], new): v[:, shift:V] = w
    d = x[:, head:]
    nv = d.shape[1] // V
    vec = d[:, :nv*V].reshape(outputs, nv, V)
    for i in range(V):
        for j in range(0, -(-nv // step)):
            lists[i] = update(lists[i], vec[:, j*step:(j+1)*step, i], ops)
    tail = d[:, nv*V:]
    if tail.shape[1]:
        lists[0] = update(lists[0], tail, ops)
    acc = lists[0]
    for l in lists[1:]: acc = ops.combine(acc, l)
    return acc
