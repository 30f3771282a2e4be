"""Kernels whose machine code a GPU ran: norms, sums of products, elementwise arithmetic, dots of every precision."""

import triton
import triton.language as tl


@triton.jit
def sum_of_squares(x, y, n, N: tl.constexpr):
    r, i = tl.program_id(0), tl.arange(0, N)
    v = tl.load(x + r * n + i, mask=i < n, other=0.0).to(tl.float32)
    tl.store(y + r, tl.sum(v * v, 0))


@triton.jit
def moments(x, mean, var, n, N: tl.constexpr):
    r, i = tl.program_id(0), tl.arange(0, N)
    v = tl.load(x + r * n + i, mask=i < n, other=0.0).to(tl.float32)
    m = tl.sum(v, 0) / n
    d = tl.where(i < n, v - m, 0.0)
    tl.store(mean + r, m)
    tl.store(var + r, tl.sum(d * d, 0) / n)


@triton.jit
def moments_of_whole_rows(x, mean, var, N: tl.constexpr):
    r, i = tl.program_id(0), tl.arange(0, N)
    v = tl.load(x + r * N + i).to(tl.float32)
    m = tl.sum(v, 0) / N
    d = v - m
    tl.store(mean + r, m)
    tl.store(var + r, tl.sum(d * d, 0) / N)


@triton.jit
def layer_norm(x, w, b, y, stats, n, eps, N: tl.constexpr):
    r, i = tl.program_id(0), tl.arange(0, N)
    mask = i < n
    v = tl.load(x + r * n + i, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(v, 0) / n
    d = tl.where(mask, v - mean, 0.0)
    var = tl.sum(d * d, 0) / n
    rstd = 1 / tl.sqrt(var + eps)
    tl.store(stats + 2 * r, mean)
    tl.store(stats + 2 * r + 1, rstd)
    z = (v - mean) * rstd
    tl.store(y + r * n + i, (z * tl.load(w + i, mask=mask) + tl.load(b + i, mask=mask)).to(y.dtype.element_ty), mask=mask)


@triton.jit
def layer_norm_in_blocks(x, w, b, y, n, eps, N: tl.constexpr):
    r, i = tl.program_id(0), tl.arange(0, N)
    total = tl.zeros([N], tl.float32)
    for start in range(0, n, N):
        total += tl.load(x + r * n + start + i, mask=start + i < n, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / n
    total = tl.zeros([N], tl.float32)
    for start in range(0, n, N):
        v = tl.load(x + r * n + start + i, mask=start + i < n, other=0.0).to(tl.float32)
        d = tl.where(start + i < n, v - mean, 0.0)
        total += d * d
    rstd = 1 / tl.sqrt(tl.sum(total, axis=0) / n + eps)
    for start in range(0, n, N):
        mask = start + i < n
        v = tl.load(x + r * n + start + i, mask=mask, other=0.0).to(tl.float32)
        y_hat = (v - mean) * rstd
        tl.store(y + r * n + start + i, y_hat * tl.load(w + start + i, mask=mask) + tl.load(b + start + i, mask=mask), mask=mask)


@triton.jit
def rms_norm(x, w, y, n, eps, N: tl.constexpr):
    r, i = tl.program_id(0), tl.arange(0, N)
    mask = i < n
    v = tl.load(x + r * n + i, mask=mask, other=0.0).to(tl.float32)
    square = tl.sum(v * v, axis=0) / n
    rstd = tl.rsqrt(square + eps)
    tl.store(y + r * n + i, (v * rstd * tl.load(w + i, mask=mask)).to(y.dtype.element_ty), mask=mask)


@triton.jit
def gemma_norm(x, w, y, n, eps, offset, N: tl.constexpr):
    r, i = tl.program_id(0), tl.arange(0, N)
    mask = i < n
    v = tl.load(x + r * n + i, mask=mask, other=0.0).to(tl.float32)
    rstd = tl.rsqrt(tl.sum(v * v, axis=0) / n + eps)
    tl.store(y + r * n + i, v * rstd * (offset + tl.load(w + i, mask=mask)), mask=mask)


@triton.jit
def rms_norm_backward(x, dy, w, dx, n, eps, N: tl.constexpr):
    r, i = tl.program_id(0), tl.arange(0, N)
    mask = i < n
    v = tl.load(x + r * n + i, mask=mask, other=0.0).to(tl.float32)
    g = tl.load(dy + r * n + i, mask=mask, other=0.0) * tl.load(w + i, mask=mask, other=0.0)
    rstd = tl.rsqrt(tl.sum(v * v, axis=0) / n + eps)
    d = rstd * g
    d += rstd * (-(1 / n) * rstd * rstd * tl.sum(g * v, axis=0) * v)
    tl.store(dx + r * n + i, d, mask=mask)


@triton.jit
def layer_norm_backward(x, dy, w, dx, n, eps, N: tl.constexpr):
    r, i = tl.program_id(0), tl.arange(0, N)
    mask = i < n
    v = tl.load(x + r * n + i, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(v, 0) / n
    d = tl.where(mask, v - mean, 0.0)
    rstd = 1 / tl.sqrt(tl.sum(d * d, 0) / n + eps)
    xhat = tl.where(mask, (v - mean) * rstd, 0.0)
    wdy = tl.where(mask, tl.load(w + i, mask=mask) * tl.load(dy + r * n + i, mask=mask), 0.0)
    c1 = tl.sum(xhat * wdy, axis=0) / n
    c2 = tl.sum(wdy, axis=0) / n
    tl.store(dx + r * n + i, (wdy - (xhat * c1 + c2)) * rstd, mask=mask)


@triton.jit
def softmax(x, y, n, N: tl.constexpr):
    r, i = tl.program_id(0), tl.arange(0, N)
    v = tl.load(x + r * n + i, mask=i < n, other=-float("inf")).to(tl.float32)
    e = tl.exp(v - tl.max(v, 0))
    tl.store(y + r * n + i, (e / tl.sum(e, 0)).to(y.dtype.element_ty), mask=i < n)


@triton.jit
def softmax_of_rows(x, y, M: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    v = tl.load(x + at)
    e = tl.exp(v - tl.max(v, 1)[:, None])
    tl.store(y + at, e / tl.sum(e, 1)[:, None])


@triton.jit
def softmax_backward(y, dy, dx, scale, n, N: tl.constexpr):
    r, i = tl.program_id(0), tl.arange(0, N)
    p = tl.load(y + r * n + i, mask=i < n, other=0.0)
    g = tl.load(dy + r * n + i, mask=i < n, other=0.0)
    tl.store(dx + r * n + i, (p * g - p * tl.sum(p * g, 0)) * scale, mask=i < n)


@triton.jit
def online_softmax(x, most, total, n, N: tl.constexpr):
    r, i = tl.program_id(0), tl.arange(0, N)
    m = -float("inf")
    d = 0.0
    for start in range(0, n, N):
        v = tl.load(x + r * n + start + i, mask=start + i < n, other=-float("inf"))
        new = tl.maximum(m, tl.max(v))
        d = d * tl.exp(m - new) + tl.sum(tl.exp(v - new))
        m = new
    tl.store(most + r, m)
    tl.store(total + r, d)


@triton.jit
def cross_entropy(x, target, loss, n, N: tl.constexpr):
    r, i = tl.program_id(0), tl.arange(0, N)
    v = tl.load(x + r * n + i, mask=i < n, other=-float("inf")).to(tl.float32)
    m = tl.max(v, 0)
    t = tl.load(target + r)
    tl.store(loss + r, tl.log(tl.sum(tl.exp(v - m), 0)) + m - tl.load(x + r * n + t).to(tl.float32))


@triton.jit
def cross_entropy_backward(x, target, dx, scale, n, N: tl.constexpr):
    r, i = tl.program_id(0), tl.arange(0, N)
    v = tl.load(x + r * n + i, mask=i < n, other=-float("inf"))
    e = tl.exp(v - tl.max(v, 0))
    p = e / tl.sum(e, 0)
    tl.store(dx + r * n + i, tl.where(i == tl.load(target + r), p - 1.0, p) * scale, mask=i < n)


@triton.jit
def dot_by_sum(x, y, z, N: tl.constexpr):
    r, i = tl.program_id(0), tl.arange(0, N)
    a = tl.load(x + r * N + i).to(tl.float32)
    tl.store(z + r, tl.sum(a * tl.load(y + r * N + i).to(tl.float32), 0))


@triton.jit
def sums_of(x, y, z, s, N: tl.constexpr, HOW: tl.constexpr):
    r, i = tl.program_id(0), tl.arange(0, N)
    a, b = tl.load(x + r * N + i), tl.load(y + r * N + i)
    if HOW == "xy+x":
        v = a * b + a
    elif HOW == "xx+yy":
        v = a * a + b * b
    elif HOW == "xxy":
        v = a * a * b
    elif HOW == "sx":
        v = a * s
    elif HOW == "-xy":
        v = -(a * b)
    elif HOW == "x-sy":
        v = a - s * b
    elif HOW == "|xy|":
        v = tl.abs(a * b)
    elif HOW == "xx and x":
        v = a * a
        tl.store(y + r * N + i, v)
    elif HOW == "where":
        v = tl.where(i % 3 == 0, a * b, 0.0)
    elif HOW == "2x":
        v = a * 2.0
    else:
        v = (a - 1.5) * (b + 0.5)
    tl.store(z + r, tl.sum(v, 0))


@triton.jit
def matrix_sums(x, y, z, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr, HOW: tl.constexpr):
    rm, rn = tl.arange(0, M), tl.arange(0, N)
    a = tl.load(x + rm[:, None] * N + rn[None, :]).to(tl.float32)
    if HOW == "squares":
        v = a * a
    elif HOW == "row":
        v = a * tl.load(y + rn).to(tl.float32)[None, :]
    elif HOW == "column":
        v = a * tl.load(y + rm).to(tl.float32)[:, None]
    elif HOW == "plain":
        v = a
    else:
        v = a * tl.load(y + rm[:, None] * N + rn[None, :]).to(tl.float32)
    if AXIS == 0:
        tl.store(z + rn, tl.sum(v, 0))
    elif AXIS == 1:
        tl.store(z + rm, tl.sum(v, 1))
    else:
        tl.store(z, tl.sum(v))


@triton.jit
def matvec(a, x, y, K, M: tl.constexpr, BK: tl.constexpr, HOW: tl.constexpr):
    rm, rk = tl.program_id(0) * M + tl.arange(0, M), tl.arange(0, BK)
    if HOW == "total":
        acc = tl.zeros((M, BK), tl.float32)
        for k in range(0, K, BK):
            acc += tl.load(a + rm[:, None] * K + (k + rk)[None, :]).to(tl.float32) * tl.load(x + k + rk).to(tl.float32)[None, :]
        tl.store(y + rm, tl.sum(acc, 1))
    else:
        total = tl.zeros((M,), tl.float32)
        for k in range(0, K, BK):
            total += tl.sum(
                tl.load(a + rm[:, None] * K + (k + rk)[None, :]).to(tl.float32) * tl.load(x + k + rk).to(tl.float32)[None, :], 1
            )
        tl.store(y + rm, total)


@triton.jit
def centred_rows(x, w, y, M: tl.constexpr, N: tl.constexpr):
    rm, rn = tl.arange(0, M), tl.arange(0, N)
    v = tl.load(x + rm[:, None] * N + rn[None, :]).to(tl.float32)
    mean = tl.sum(v, 1) * (1.0 / N)
    d = v - mean[:, None]
    rstd = tl.rsqrt(tl.sum(d * d, 1) * (1.0 / N) + 1e-5)
    tl.store(y + rm[:, None] * N + rn[None, :], d * rstd[:, None] * tl.load(w + rn)[None, :])


@triton.jit
def group_norm(x, w, b, y, M: tl.constexpr, N: tl.constexpr):
    rm, rn = tl.arange(0, M), tl.arange(0, N)
    v = tl.load(x + rm[:, None] * N + rn[None, :])
    mean = tl.sum(tl.sum(v, 1), 0) / (M * N)
    var = tl.sum(tl.sum(v * v, 1), 0) / (M * N) - mean * mean
    rstd = tl.rsqrt(var + 1e-5)
    z = (v - mean) * rstd
    tl.store(y + rm[:, None] * N + rn[None, :], z * tl.load(w + rm)[:, None] + tl.load(b + rm)[:, None])


@triton.jit
def elementwise(x, y, z, d, N: tl.constexpr, HOW: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    a, b, c = tl.load(x + i), tl.load(y + i), tl.load(z + i)
    if HOW == "ab+c":
        r = a * b + c
    elif HOW == "c-ab":
        r = c - a * b
    elif HOW == "ab-c":
        r = a * b - c
    elif HOW == "ab+bc":
        r = a * b + b * c
    elif HOW == "ab-bc":
        r = a * b - b * c
    elif HOW == "bc-ab":
        r = b * c - a * b
    elif HOW == "-ab+c":
        r = -(a * b) + c
    elif HOW == "abc+a":
        r = a * b * c + a
    elif HOW == "horner":
        r = ((a * 0.3 + 0.7) * a + 1.1) * a + 0.9
    elif HOW == "lerp":
        r = a + 0.3 * (b - a)
    elif HOW == "mix":
        r = a * 0.3 + b * (1.0 - 0.3)
    elif HOW == "twice":
        p = a * b
        r = (p + c) * p
    elif HOW == "kept":
        p = a * b
        tl.store(x + i, p)
        r = p + c
    elif HOW == "three":
        p = a * b
        r = (p + c) * (p - a) + (c - p)
    elif HOW == "four":
        r = a * b + b * c + c * a + a * a
    elif HOW == "balanced":
        r = (a * b + b * c) + (c * a + a * a)
    elif HOW == "chosen":
        r = tl.where(a > 0, a * b, b * c) + c
    elif HOW == "chosen sum":
        r = tl.where(a > 0, a * b + c, c)
    elif HOW == "2a+b":
        r = a * 2.0 + b
    elif HOW == "norm":
        r = a / tl.sqrt(a * a + b * b + 1e-6)
    else:
        r = (a + b) * (a - b)
    tl.store(d + i, r)


@triton.jit
def elementwise_of_scalar(x, y, d, s, N: tl.constexpr, HOW: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    a, b = tl.load(x + i), tl.load(y + i)
    k = tl.load(x)
    if HOW == "sa+b":
        r = s * a + b
    elif HOW == "a-ks":
        r = a - k * s
    elif HOW == "a*(ks+k)":
        r = a * (k * s + k) + b
    else:
        r = (a - k) * s + (b - k) * k
    tl.store(d + i, r)


@triton.jit
def rope(q, cos, sin, o, HALF: tl.constexpr):
    r, i = tl.program_id(0), tl.arange(0, HALF)
    c, s = tl.load(cos + r * HALF + i), tl.load(sin + r * HALF + i)
    a, b = tl.load(q + r * 2 * HALF + i).to(tl.float32), tl.load(q + r * 2 * HALF + HALF + i).to(tl.float32)
    tl.store(o + r * 2 * HALF + i, a * c - b * s)
    tl.store(o + r * 2 * HALF + HALF + i, b * c + a * s)


@triton.jit
def swiglu(a, b, c, n, N: tl.constexpr):
    r, i = tl.program_id(0), tl.arange(0, N)
    x = tl.load(a + r * n + i, mask=i < n, other=0.0).to(tl.float32)
    y = tl.load(b + r * n + i, mask=i < n, other=0.0)
    tl.store(c + r * n + i, (x * tl.sigmoid(x)).to(y.dtype) * y, mask=i < n)


@triton.jit
def swiglu_backward(dc, a, b, da, db, n, N: tl.constexpr):
    r, i = tl.program_id(0), tl.arange(0, N)
    g = tl.load(dc + r * n + i, mask=i < n, other=0.0)
    x = tl.load(a + r * n + i, mask=i < n, other=0.0).to(tl.float32)
    y = tl.load(b + r * n + i, mask=i < n, other=0.0)
    sig = tl.sigmoid(x)
    silu = x * sig
    tl.store(da + r * n + i, g * (silu * (1 - sig) + sig) * y, mask=i < n)
    tl.store(db + r * n + i, g * silu, mask=i < n)


@triton.jit
def gelu(x, y, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    v = tl.load(x + i).to(tl.float32)
    t = 0.7978845608028654 * (v + 0.044715 * v * v * v)
    e = tl.exp(-2.0 * tl.abs(t))
    tanh = tl.where(t < 0, -1.0, 1.0) * (1.0 - e) / (1.0 + e)
    tl.store(y + i, 0.5 * v * (1.0 + tanh))


@triton.jit
def adam(p, g, m, v, lr, beta1, beta2, eps, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    grad = tl.load(g + i)
    first = beta1 * tl.load(m + i) + (1 - beta1) * grad
    second = beta2 * tl.load(v + i) + (1 - beta2) * grad * grad
    tl.store(m + i, first)
    tl.store(v + i, second)
    tl.store(p + i, tl.load(p + i) - lr * first / (tl.sqrt(second) + eps))


@triton.jit
def quantised(x, y, s, n, N: tl.constexpr):
    r, i = tl.program_id(0), tl.arange(0, N)
    v = tl.load(x + r * n + i, mask=i < n, other=0.0).to(tl.float32)
    scale = tl.max(tl.abs(v), 0) / 448.0
    tl.store(s + r, scale)
    tl.store(y + r * n + i, (v / scale).to(tl.float8e4nv).to(tl.float32) * scale, mask=i < n)


@triton.jit
def dots(a, b, c, d, K, M: tl.constexpr, N: tl.constexpr, BK: tl.constexpr, HOW: tl.constexpr, P: tl.constexpr, Z: tl.constexpr):
    rm, rn, rk = tl.program_id(0) * M + tl.arange(0, M), tl.arange(0, N), tl.arange(0, BK)
    tile = rm[:, None] * N + rn[None, :]
    acc = tl.load(c + tile) if HOW == "start" else tl.zeros((M, N), tl.float32)
    for k in range(0, K, BK):
        x = tl.load(a + rm[:, None] * K + (k + rk)[None, :])
        y = tl.load(b + (k + rk)[:, None] * N + rn[None, :])
        if HOW == "add":
            acc += tl.dot(x, y, input_precision=P)
        elif HOW == "scale":
            acc = acc * 0.7 + tl.dot(x, y, input_precision=P) * 1.3
        else:
            acc = tl.dot(x, y, acc, input_precision=P)
    if HOW == "bias":
        acc += tl.load(c + rn)[None, :]
    elif HOW == "scaled bias":
        acc = acc * Z + tl.load(c + rn)[None, :]
    elif HOW == "rows and columns":
        acc = acc * tl.load(c + rn)[None, :] * tl.load(c + N + rm)[:, None] + tl.load(c + rn)[None, :]
    elif HOW == "relu":
        acc = tl.maximum(acc, 0.0) * Z + acc
    tl.store(d + tile, acc)


@triton.jit
def one_dot(a, b, c, d, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, HOW: tl.constexpr, P: tl.constexpr):
    rm, rn, rk = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x, y = tl.load(a + rm[:, None] * K + rk[None, :]), tl.load(b + rk[:, None] * N + rn[None, :])
    tile = rm[:, None] * N + rn[None, :]
    if HOW == "scaled operand":
        r = tl.dot(x * 1.7, y, input_precision=P)
    elif HOW == "exp":
        r = tl.dot(tl.exp(x), y, input_precision=P)
    elif HOW == "transposed":
        r = tl.trans(tl.dot(tl.trans(y), tl.trans(x), input_precision=P))
    elif HOW == "plus":
        r = tl.dot(x, y, input_precision=P) + tl.load(c + tile)
    elif HOW == "squares":
        p = tl.dot(x, y, input_precision=P)
        r = p * p + tl.load(c + tile)
    elif HOW == "chained":
        r = tl.dot(tl.dot(x, y, input_precision=P).to(x.dtype), tl.load(c + rn[:, None] * N + rn[None, :]), input_precision=P)
    else:
        r = tl.dot(x, y, input_precision=P)
    tl.store(d + tile, r)


@triton.jit
def dot_and_sums(a, b, d, s, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, AXIS: tl.constexpr):
    rm, rn, rk = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    p = tl.dot(tl.load(a + rm[:, None] * K + rk[None, :]), tl.load(b + rk[:, None] * N + rn[None, :]))
    tl.store(d + (rm if AXIS == 1 else rn), tl.sum(p * p, AXIS))
    tl.store(s + (rm if AXIS == 1 else rn), tl.sum(p, AXIS))


@triton.jit
def attention(q, k, v, o, n, scale, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr):
    rm, rn, rd = tl.program_id(0) * M + tl.arange(0, M), tl.arange(0, N), tl.arange(0, D)
    query = tl.load(q + rm[:, None] * D + rd[None, :])
    most, total, acc = tl.full((M,), -float("inf"), tl.float32), tl.zeros((M,), tl.float32), tl.zeros((M, D), tl.float32)
    for start in range(0, n, N):
        keys = tl.load(k + (start + rn)[None, :] * D + rd[:, None])
        s = tl.dot(query, keys) * scale
        new = tl.maximum(most, tl.max(s, 1))
        p = tl.exp2(s - new[:, None])
        decay = tl.exp2(most - new)
        total = total * decay + tl.sum(p, 1)
        acc = acc * decay[:, None]
        acc = tl.dot(p.to(query.dtype), tl.load(v + (start + rn)[:, None] * D + rd[None, :]), acc)
        most = new
    tl.store(o + rm[:, None] * D + rd[None, :], acc / total[:, None])


@triton.jit
def recurrence(q, k, v, g, o, T, DK: tl.constexpr, DV: tl.constexpr, DELTA: tl.constexpr):
    rk, rv = tl.arange(0, DK), tl.arange(0, DV)
    h = tl.zeros((DK, DV), tl.float32)
    for t in range(0, T):
        key, value = tl.load(k + t * DK + rk).to(tl.float32), tl.load(v + t * DV + rv).to(tl.float32)
        h = h * tl.exp(tl.load(g + t))
        if DELTA:
            value -= tl.sum(h * key[:, None], 0)
        h += key[:, None] * value[None, :]
        tl.store(o + t * DV + rv, tl.sum(h * tl.load(q + t * DK + rk).to(tl.float32)[:, None], 0))
