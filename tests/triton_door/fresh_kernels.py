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
