// Layers, forward and backward. The order of additions depends only on the shapes, so every run gives the same bits.

static float add_up(float8 v) {
  const float4 four = v.lo + v.hi;
  const float2 two = four.lo + four.hi;
  return two.x + two.y;
}

// y [rows, units] = x [rows, in] W^T [units, in] + b [units]. An item computes 4 rows of 4 units; beyond the edges it
// repeats the last row or unit and does not store the result.
TASK dense(FAULT, PLACE(y), PLACE(x), PLACE(w), PLACE(b), uint rows, uint units, uint in) {
  RETURN_IF_ENDED;
  const uint unit = get_global_id(0) * 4, row = get_global_id(1) * 4;
  global const float *x[4], *w[4];
  for (uint k = 0; k < 4; ++k) {
    x[k] = AT(float, x) + (ulong)min(row + k, rows - 1) * in;
    w[k] = AT(float, w) + (ulong)min(unit + k, units - 1) * in;
  }
  float8 sums[4][4];
#pragma unroll
  for (uint r = 0; r < 4; ++r) {
#pragma unroll
    for (uint u = 0; u < 4; ++u) sums[r][u] = 0;
  }
  uint i = 0;
  for (; i + 8 <= in; i += 8) {
    float8 w8[4];
#pragma unroll
    for (uint u = 0; u < 4; ++u) w8[u] = vload8(0, w[u] + i);
#pragma unroll
    for (uint r = 0; r < 4; ++r) {
      const float8 x8 = vload8(0, x[r] + i);
#pragma unroll
      for (uint u = 0; u < 4; ++u) sums[r][u] = fma(x8, w8[u], sums[r][u]);
    }
  }
#pragma unroll
  for (uint r = 0; r < 4; ++r) {
#pragma unroll
    for (uint u = 0; u < 4; ++u) {
      float sum = add_up(sums[r][u]);
      for (uint k = i; k < in; ++k) sum += x[r][k] * w[u][k];
      if (row + r < rows && unit + u < units)
        AT(float, y)[(ulong)(row + r) * units + unit + u] = sum + AT(float, b)[unit + u];
    }
  }
}

// out [rows, columns]: out[a, i] = sum over k of l[a * l_row + k * l_term] * r[k * columns + i]. Used for the gradients of
// a dense layer: to its input with l = dy, r = W; to its weights with l = dy transposed, r = x.
TASK product(FAULT, PLACE(out), PLACE(l), uint l_row, uint l_term, PLACE(r), uint rows, uint terms, uint columns) {
  RETURN_IF_ENDED;
  const uint column = get_global_id(0) * 16, row = get_global_id(1) * 4;
  global const float *l[4], *r = AT(float, r) + column;
  for (uint a = 0; a < 4; ++a) l[a] = AT(float, l) + (ulong)min(row + a, rows - 1) * l_row;
  if (column + 16 <= columns) {
    float8 low[4], high[4];
#pragma unroll
    for (uint a = 0; a < 4; ++a) low[a] = high[a] = 0;
    for (uint k = 0; k < terms; ++k) {
      const float8 r_low = vload8(0, r + (ulong)k * columns), r_high = vload8(1, r + (ulong)k * columns);
#pragma unroll
      for (uint a = 0; a < 4; ++a) {
        const float8 factor = l[a][(ulong)k * l_term];
        low[a] = fma(factor, r_low, low[a]);
        high[a] = fma(factor, r_high, high[a]);
      }
    }
#pragma unroll
    for (uint a = 0; a < 4; ++a) {
      if (row + a >= rows) break;
      vstore8(low[a], 0, AT(float, out) + (ulong)(row + a) * columns + column);
      vstore8(high[a], 1, AT(float, out) + (ulong)(row + a) * columns + column);
    }
    return;
  }
  for (uint a = 0; a < 4 && row + a < rows; ++a) {
    for (uint i = 0; column + i < columns; ++i) {
      float sum = 0;
      for (uint k = 0; k < terms; ++k) sum = fma(l[a][(ulong)k * l_term], r[(ulong)k * columns + i], sum);
      AT(float, out)[(ulong)(row + a) * columns + column + i] = sum;
    }
  }
}

// out [units] = sums of dy [rows, units] over the rows; 64 units per item.
TASK bias_gradient(FAULT, PLACE(out), PLACE(dy), uint rows, uint units) {
  RETURN_IF_ENDED;
  const uint begin = get_global_id(0) * 64, end = min(begin + 64, units);
  for (uint u = begin; u < end; ++u) {
    float sum = 0;
    for (uint row = 0; row < rows; ++row) sum += AT(float, dy)[(ulong)row * units + u];
    AT(float, out)[u] = sum;
  }
}

TASK relu(FAULT, PLACE(y), PLACE(x), ulong count) {
  RETURN_IF_ENDED;
  const ulong begin = get_global_id(0) * CHUNK_ELEMENTS, end = min(begin + CHUNK_ELEMENTS, count);
  for (ulong i = begin; i < end; ++i) AT(float, y)[i] = AT(float, x)[i] > 0 ? AT(float, x)[i] : 0.0f;
}

// dx = dy where x is above 0; dx and dy may be the same.
TASK relu_gradient(FAULT, PLACE(dx), PLACE(dy), PLACE(x), ulong count) {
  RETURN_IF_ENDED;
  const ulong begin = get_global_id(0) * CHUNK_ELEMENTS, end = min(begin + CHUNK_ELEMENTS, count);
  for (ulong i = begin; i < end; ++i) AT(float, dx)[i] = AT(float, x)[i] > 0 ? AT(float, dy)[i] : 0.0f;
}
