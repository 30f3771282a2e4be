"""More kernels whose machine code a GPU ran, which judge what was found on those of machine_kernels.py."""

import triton
import triton.language as tl


@triton.jit
def fused_add_norm(x, res, w, y, out, n, eps, N: tl.constexpr):
    r, i = tl.program_id(0), tl.arange(0, N)
    mask = i < n
    v = tl.load(x + r * n + i, mask=mask, other=0.0).to(tl.float32) + tl.load(res + r * n + i, mask=mask, other=0.0).to(tl.float32)
    tl.store(out + r * n + i, v, mask=mask)
    rstd = tl.rsqrt(tl.sum(v * v, 0) / n + eps)
    tl.store(y + r * n + i, v * rstd * tl.load(w + i, mask=mask, other=0.0), mask=mask)


@triton.jit
def l2_norm(x, y, rs, eps, N: tl.constexpr):
    r, i = tl.program_id(0), tl.arange(0, N)
    v = tl.load(x + r * N + i).to(tl.float32)
    rstd = 1 / tl.sqrt(tl.sum(v * v) + eps)
    tl.store(y + r * N + i, (v * rstd).to(y.dtype.element_ty))
    tl.store(rs + r, rstd)


@triton.jit
def l2_norm_of_rows(x, y, eps, T, M: tl.constexpr, N: tl.constexpr):
    rm, rn = tl.program_id(0) * M + tl.arange(0, M), tl.arange(0, N)
    at = rm[:, None] * N + rn[None, :]
    v = tl.load(x + at, mask=rm[:, None] < T, other=0.0).to(tl.float32)
    rstd = 1 / tl.sqrt(tl.sum(v * v, 1) + eps)
    tl.store(y + at, v * rstd[:, None], mask=rm[:, None] < T)


@triton.jit
def cosine(x, y, z, N: tl.constexpr):
    r, i = tl.program_id(0), tl.arange(0, N)
    a, b = tl.load(x + r * N + i).to(tl.float32), tl.load(y + r * N + i).to(tl.float32)
    tl.store(z + r, tl.sum(a * b, 0) / (tl.sqrt(tl.sum(a * a, 0)) * tl.sqrt(tl.sum(b * b, 0)) + 1e-8))


@triton.jit
def squared_error(x, y, loss, dx, n, N: tl.constexpr):
    r, i = tl.program_id(0), tl.arange(0, N)
    a, b = tl.load(x + r * n + i, mask=i < n, other=0.0), tl.load(y + r * n + i, mask=i < n, other=0.0)
    d = a - b
    tl.store(loss + r, tl.sum(d * d) / n)
    tl.store(dx + r * n + i, 2.0 * d / n, mask=i < n)


@triton.jit
def variance_of_columns(x, mean, var, T, M: tl.constexpr, N: tl.constexpr):
    rm, rn = tl.arange(0, M), tl.arange(0, N)
    first = tl.zeros((N,), tl.float32)
    second = tl.zeros((N,), tl.float32)
    for start in range(0, T, M):
        v = tl.load(x + (start + rm)[:, None] * N + rn[None, :]).to(tl.float32)
        first += tl.sum(v, 0)
        second += tl.sum(v * v, 0)
    m = first / T
    tl.store(mean + rn, m)
    tl.store(var + rn, second / T - m * m)


@triton.jit
def geglu(a, b, c, n, N: tl.constexpr):
    r, i = tl.program_id(0), tl.arange(0, N)
    x = tl.load(a + r * n + i, mask=i < n, other=0.0).to(tl.float32)
    t = 0.7978845608028654 * (x + 0.044715 * (x * x * x))
    gate = x * tl.sigmoid(2.0 * t)
    tl.store(c + r * n + i, gate * tl.load(b + r * n + i, mask=i < n, other=0.0), mask=i < n)


@triton.jit
def weight_gradient(x, dy, dw, db, T, M: tl.constexpr, N: tl.constexpr):
    rm, rn = tl.arange(0, M), tl.program_id(0) * N + tl.arange(0, N)
    w, b = tl.zeros((M, N), tl.float32), tl.zeros((M, N), tl.float32)
    for start in range(0, T, M):
        at = (start + rm)[:, None] * (2 * N) + rn[None, :]
        g = tl.load(dy + at).to(tl.float32)
        w += g * tl.load(x + at).to(tl.float32)
        b += g
    tl.store(dw + rn, tl.sum(w, 0))
    tl.store(db + rn, tl.sum(b, 0))


@triton.jit
def kl_divergence(p, q, loss, n, N: tl.constexpr):
    r, i = tl.program_id(0), tl.arange(0, N)
    a = tl.load(p + r * n + i, mask=i < n, other=-float("inf"))
    b = tl.load(q + r * n + i, mask=i < n, other=-float("inf"))
    ea, eb = tl.exp(a - tl.max(a)), tl.exp(b - tl.max(b))
    pa, pb = ea / tl.sum(ea), eb / tl.sum(eb)
    tl.store(loss + r, tl.sum(pa * (pa - pb)))


@triton.jit
def complex_product(a, b, c, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    x, y, u, v = tl.load(a + 2 * i), tl.load(a + 2 * i + 1), tl.load(b + 2 * i), tl.load(b + 2 * i + 1)
    tl.store(c + 2 * i, x * u - y * v)
    tl.store(c + 2 * i + 1, x * v + y * u)


@triton.jit
def helper(a, b, c):
    return a * b + c


@triton.jit
def by_helper(x, y, z, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    a, b = tl.load(x + i), tl.load(y + i)
    p = a * b
    tl.store(z + i, helper(a, helper(b, a, b), p) + helper(p, p, a - b))


@triton.jit
def momentum(p, g, m, lr, mu, decay, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    w = tl.load(p + i)
    grad = tl.load(g + i) + decay * w
    v = mu * tl.load(m + i) + grad
    tl.store(m + i, v)
    tl.store(p + i, w - lr * (grad + mu * v))


@triton.jit
def linear_attention(q, k, v, o, T, M: tl.constexpr, D: tl.constexpr):
    rm, rd = tl.arange(0, M), tl.arange(0, D)
    state = tl.zeros((D, D), tl.float32)
    for start in range(0, T, M):
        query = tl.load(q + (start + rm)[:, None] * D + rd[None, :])
        key = tl.load(k + (start + rm)[None, :] * D + rd[:, None])
        value = tl.load(v + (start + rm)[:, None] * D + rd[None, :])
        s = tl.dot(query, key)
        s = tl.where(rm[:, None] >= rm[None, :], s, 0.0)
        out = tl.dot(s.to(value.dtype), value) + tl.dot(query, state.to(query.dtype))
        state += tl.dot(key, value)
        tl.store(o + (start + rm)[:, None] * D + rd[None, :], out)


@triton.jit
def mlp(x, w, b, u, y, M: tl.constexpr, K: tl.constexpr, H: tl.constexpr, P: tl.constexpr):
    rm, rk, rh = tl.arange(0, M), tl.arange(0, K), tl.arange(0, H)
    h = tl.dot(tl.load(x + rm[:, None] * K + rk[None, :]), tl.load(w + rk[:, None] * H + rh[None, :]), input_precision=P)
    h += tl.load(b + rh)[None, :]
    h = h * tl.sigmoid(h)
    z = tl.dot(h.to(x.dtype.element_ty), tl.load(u + rh[:, None] * K + rk[None, :]), input_precision=P)
    tl.store(y + rm[:, None] * K + rk[None, :], z)


@triton.jit
def pairwise_distance(x, y, z, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr):
    rm, rn, rd = tl.arange(0, M), tl.arange(0, N), tl.arange(0, D)
    a = tl.load(x + rm[:, None] * D + rd[None, :])
    b = tl.load(y + rn[:, None] * D + rd[None, :])
    d = a[:, None, :] - b[None, :, :]
    tl.store(z + rm[:, None] * N + rn[None, :], tl.sum(d * d, 2))


@triton.jit
def divided_by_constants(x, y, N: tl.constexpr, C: tl.constexpr, HOW: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    v = tl.load(x + i)
    if HOW == "only":
        r = v / C
    elif HOW == "added":
        r = v / C + 0.25
    else:
        r = tl.sum(v.to(tl.float32), 0) / C + v
    tl.store(y + i, r)


@triton.jit
def poly_norm(x, w, y, n, eps, N: tl.constexpr):
    r, i = tl.program_id(0), tl.arange(0, N)
    v = tl.load(x + r * n + i, mask=i < n, other=0.0).to(tl.float32)
    square = v * v
    cube = square * v
    r1 = tl.rsqrt(tl.sum(v * v, 0) / n + eps)
    r2 = tl.rsqrt(tl.sum(square * square, 0) / n + eps)
    r3 = tl.rsqrt(tl.sum(cube * cube, 0) / n + eps)
    w0, w1, w2 = tl.load(w), tl.load(w + 1), tl.load(w + 2)
    tl.store(y + r * n + i, w0 * cube * r3 + w1 * square * r2 + w2 * v * r1 + tl.load(w + 3), mask=i < n)


@triton.jit
def divergence(p, q, loss, dx, beta, n, N: tl.constexpr):
    r, i = tl.program_id(0), tl.arange(0, N)
    a = tl.load(p + r * n + i, mask=i < n, other=0.0)
    b = tl.load(q + r * n + i, mask=i < n, other=0.0)
    m = beta * a + (1 - beta) * b
    tl.store(loss + r, tl.sum(beta * a * (a - m) + (1 - beta) * b * (b - m), axis=0))
    tl.store(dx + r * n + i, beta * a * (a - m), mask=i < n)


@triton.jit
def total_variation(p, q, loss, n, N: tl.constexpr):
    r, i = tl.program_id(0), tl.arange(0, N)
    total = tl.zeros((N,), tl.float32)
    for start in range(0, n, N):
        a = tl.load(p + r * n + start + i, mask=start + i < n, other=0.0)
        b = tl.load(q + r * n + start + i, mask=start + i < n, other=0.0)
        total += 0.5 * tl.abs(a - b)
    tl.store(loss + r, tl.sum(total, 0) / n)


@triton.jit
def group_norm_in_blocks(x, w, b, y, stats, n, eps, N: tl.constexpr):
    r, i = tl.program_id(0), tl.arange(0, N)
    first, second = 0.0, 0.0
    for start in range(0, n, N):
        v = tl.load(x + r * n + start + i, mask=start + i < n, other=0.0).to(tl.float32)
        first += tl.sum(v)
        second += tl.sum(v * v)
    mean = first / n
    var = second / n - mean * mean
    rstd = tl.rsqrt(var + eps)
    tl.store(stats + 2 * r, mean)
    tl.store(stats + 2 * r + 1, rstd)
    scale, shift = tl.load(w + r), tl.load(b + r)
    for start in range(0, n, N):
        v = tl.load(x + r * n + start + i, mask=start + i < n, other=0.0).to(tl.float32)
        tl.store(y + r * n + start + i, (v - mean) * rstd * scale + shift, mask=start + i < n)


@triton.jit
def batch_statistics(x, mean, var, T, M: tl.constexpr, N: tl.constexpr):
    rm, rn = tl.arange(0, M), tl.program_id(0) * N + tl.arange(0, N)
    count, m, s = 0.0, tl.zeros((N,), tl.float32), tl.zeros((N,), tl.float32)
    for start in range(0, T, M):
        v = tl.load(x + (start + rm)[:, None] * (2 * N) + rn[None, :]).to(tl.float32)
        mu = tl.sum(v, 0) / M
        d = v - mu[None, :]
        delta = mu - m
        s += tl.sum(d * d, 0) + delta * delta * count * M / (count + M)
        m += delta * M / (count + M)
        count += M
    tl.store(mean + rn, m)
    tl.store(var + rn, s / T)


@triton.jit
def chunked_delta(q, k, v, beta, o, T, M: tl.constexpr, D: tl.constexpr):
    rm, rd = tl.arange(0, M), tl.arange(0, D)
    state = tl.zeros((D, D), tl.float32)
    for start in range(0, T, M):
        at = (start + rm)[:, None] * D + rd[None, :]
        query, key, value = tl.load(q + at), tl.load(k + at), tl.load(v + at)
        b = tl.load(beta + start + rm)
        u = (value - tl.dot(key, state.to(key.dtype))) * b[:, None]
        s = tl.where(rm[:, None] >= rm[None, :], tl.dot(query, tl.trans(key)), 0.0)
        out = tl.dot(query, state.to(query.dtype)) + tl.dot(s.to(u.dtype.scalar).to(key.dtype), u.to(key.dtype))
        state = state * 0.9 + tl.dot(tl.trans(key), u.to(key.dtype))
        tl.store(o + at, out)


@triton.jit
def rotary_backward(dy, cos, sin, dx, HALF: tl.constexpr):
    r, i = tl.program_id(0), tl.arange(0, HALF)
    c, s = tl.load(cos + r * HALF + i), tl.load(sin + r * HALF + i)
    a, b = tl.load(dy + r * 2 * HALF + i), tl.load(dy + r * 2 * HALF + HALF + i)
    tl.store(dx + r * 2 * HALF + i, (a * c + b * s).to(dx.dtype.element_ty))
    tl.store(dx + r * 2 * HALF + HALF + i, (b * c - a * s).to(dx.dtype.element_ty))


@triton.jit
def attention_backward(q, k, v, do, lse, delta, dq, n, scale, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr):
    rm, rn, rd = tl.arange(0, M), tl.arange(0, N), tl.arange(0, D)
    at = rm[:, None] * D + rd[None, :]
    query, grad = tl.load(q + at), tl.load(do + at)
    most, di = tl.load(lse + rm), tl.load(delta + rm)
    acc = tl.zeros((M, D), tl.float32)
    for start in range(0, n, N):
        keys = tl.load(k + (start + rn)[None, :] * D + rd[:, None])
        values = tl.load(v + (start + rn)[None, :] * D + rd[:, None])
        p = tl.exp2(tl.dot(query, keys) * scale - most[:, None])
        ds = p * (tl.dot(grad, values) - di[:, None])
        acc += tl.dot(ds.to(query.dtype), tl.trans(keys))
    tl.store(dq + at, acc * scale)


@triton.jit
def dequantised_rows(x, s, z, y, N: tl.constexpr, G: tl.constexpr):
    r, i = tl.program_id(0), tl.arange(0, N)
    v = tl.load(x + r * N + i).to(tl.float32)
    scale, zero = tl.load(s + r * (N // G) + i // G), tl.load(z + r * (N // G) + i // G)
    tl.store(y + r * N + i, (v - zero) * scale)
    tl.store(y + r * N + i, v * scale - zero * scale, mask=i % 2 == 0)


@triton.jit
def convolution(x, w, y, n, N: tl.constexpr, WIDTH: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    acc = tl.zeros((N,), tl.float32)
    for j in tl.static_range(WIDTH):
        acc += tl.load(x + i - j, mask=(i >= j) & (i < n), other=0.0).to(tl.float32) * tl.load(w + j).to(tl.float32)
    tl.store(y + i, acc * tl.sigmoid(acc), mask=i < n)
