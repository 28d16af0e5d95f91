// Copies, conversions and sums. Up to four parts are added at a time, in their order; for more, the host makes several
// calls.

TASK copy(FAULT, PLACE(to), PLACE(from), ulong size) {
  RETURN_IF_ENDED;
  global uchar *to = AT(uchar, to);
  global const uchar *from = AT(uchar, from);
  ulong i = get_global_id(0) * CHUNK_BYTES;
  const ulong end = min(i + CHUNK_BYTES, size);
  for (; i + 16 <= end; i += 16) vstore16(vload16(0, from + i), 0, to + i);
  for (; i < end; ++i) to[i] = from[i];
}

TASK reduce(FAULT, PLACE(to), PLACE(a), PLACE(b), PLACE(c), PLACE(d), uint parts, ulong count) {
  RETURN_IF_ENDED;
  global float *to = AT(float, to);
  global const float *a = AT(float, a), *b = AT(float, b), *c = AT(float, c), *d = AT(float, d);
  ulong i = get_global_id(0) * CHUNK_ELEMENTS;
  const ulong end = min(i + CHUNK_ELEMENTS, count);
  for (; i + 8 <= end; i += 8) {
    float8 sum = vload8(0, a + i);
    if (parts > 1) sum += vload8(0, b + i);
    if (parts > 2) sum += vload8(0, c + i);
    if (parts > 3) sum += vload8(0, d + i);
    vstore8(sum, 0, to + i);
  }
  for (; i < end; ++i) {
    float sum = a[i];
    if (parts > 1) sum += b[i];
    if (parts > 2) sum += c[i];
    if (parts > 3) sum += d[i];
    to[i] = sum;
  }
}

TASK weighted_delta(FAULT, PLACE(to), PLACE(anchor), PLACE(from), PLACE(sums), ulong count) {
  RETURN_IF_ENDED;
  global float *to = AT(float, to);
  global const float *anchor = AT(float, anchor), *from = AT(float, from);
  const float samples = (float)AT(StepSums, sums)->samples;
  ulong i = get_global_id(0) * CHUNK_ELEMENTS;
  const ulong end = min(i + CHUNK_ELEMENTS, count);
  for (; i < end; ++i) to[i] = samples * (anchor[i] - from[i]);
}

// As troupe::to_bf16: to the nearest, ties to even; NaN stays NaN.
ushort bf16_of(uint bits) {
  const bool nan = (bits & 0x7fffffffU) > 0x7f800000U;
  return (ushort)((nan ? bits | 0x400000U : bits + 0x7fffU + (bits >> 16 & 1U)) >> 16);
}

TASK pack_bf16(FAULT, PLACE(to), PLACE(from), ulong count) {
  RETURN_IF_ENDED;
  global ushort *to = AT(ushort, to);
  global const uint *from = AT(uint, from);
  ulong i = get_global_id(0) * CHUNK_ELEMENTS;
  const ulong end = min(i + CHUNK_ELEMENTS, count);
  for (; i < end; ++i) to[i] = bf16_of(from[i]);
}

TASK pack_bf16_with_residual(FAULT, PLACE(to), PLACE(from), PLACE(residual), ulong count) {
  RETURN_IF_ENDED;
  global ushort *to = AT(ushort, to);
  global const float *from = AT(float, from);
  global float *residual = AT(float, residual);
  ulong i = get_global_id(0) * CHUNK_ELEMENTS;
  const ulong end = min(i + CHUNK_ELEMENTS, count);
  for (; i < end; ++i) {
    const float whole = from[i] + residual[i];
    to[i] = bf16_of(as_uint(whole));
    const float left = whole - as_float((uint)to[i] << 16);
    residual[i] = isfinite(left) ? left : 0;
  }
}

TASK unpack_bf16(FAULT, PLACE(to), PLACE(from), ulong count) {
  RETURN_IF_ENDED;
  global uint *to = AT(uint, to);
  global const ushort *from = AT(ushort, from);
  ulong i = get_global_id(0) * CHUNK_ELEMENTS;
  const ulong end = min(i + CHUNK_ELEMENTS, count);
  for (; i < end; ++i) to[i] = (uint)from[i] << 16;
}

TASK add_bf16(FAULT, PLACE(to), PLACE(from), ulong count) {
  RETURN_IF_ENDED;
  global float *to = AT(float, to);
  global const ushort *from = AT(ushort, from);
  ulong i = get_global_id(0) * CHUNK_ELEMENTS;
  const ulong end = min(i + CHUNK_ELEMENTS, count);
  for (; i < end; ++i) to[i] += as_float((uint)from[i] << 16);
}

TASK clear(FAULT, PLACE(to), ulong size) {
  RETURN_IF_ENDED;
  global uchar *to = AT(uchar, to);
  ulong i = get_global_id(0) * CHUNK_BYTES;
  const ulong end = min(i + CHUNK_BYTES, size);
  for (; i < end; ++i) to[i] = 0;
}

#define BAD_RANK_BITS 20  // as troupe::kBadRankBits

// Stream::reduce with a NormCheck, after the reduction: squares in strands, as troupe::sum_of_squares, and the first element that
// is not finite, for which rank `own` is named.
TASK norm(FAULT, PLACE(sum), PLACE(sums), ulong count, ulong first_element, ulong own,
             uint keeps_squares) {
  RETURN_IF_ENDED;
  global const float *sum = AT(float, sum);
  global StepSums *sums = AT(StepSums, sums);
  double strands[GRADIENT_STRANDS];
  for (uint s = 0; s < GRADIENT_STRANDS; ++s) strands[s] = 0;
  for (ulong first = 0; first < count; first += SQUARE_PIECE) {
    const ulong end = min(first + SQUARE_PIECE, count);
    double4 squares[4] = {0, 0, 0, 0};  // not wider: a processor without AVX-512 has no registers of 16 floats
    ulong i = first;
    for (; i + 16 <= end; i += 16) {
      for (uint four = 0; four < 4; ++four) {
        const double4 values = convert_double4(vload4(four, sum + i));
        squares[four] += values * values;
      }
    }
    double lanes[16];
    for (uint four = 0; four < 4; ++four) vstore4(squares[four], four, lanes);
    for (ulong lane = 0; i + lane < end; ++lane) {
      const double value = (double)sum[i + lane];
      lanes[lane] += value * value;
    }
    strands[first / SQUARE_PIECE % GRADIENT_STRANDS] += fold(lanes, 16);
  }
  const double total = fold(strands, GRADIENT_STRANDS);
  if (keeps_squares) sums->squares += total;
  if (isfinite(total)) return;
  ulong at = 0;
  while (at < count && isfinite(sum[at])) ++at;
  const ulong bad = (first_element + at + 1) << BAD_RANK_BITS | own;
  if (at < count && (sums->bad == 0 || bad < sums->bad)) sums->bad = bad;
}

// Names rank `rank` for that element, if its part is not finite there and only `own` has been named.
TASK blame(FAULT, PLACE(part), PLACE(sums), ulong count, ulong first_element, ulong own, ulong rank) {
  RETURN_IF_ENDED;
  global StepSums *sums = AT(StepSums, sums);
  const ulong bad = sums->bad, element = (bad >> BAD_RANK_BITS) - 1;
  if (bad == 0 || (bad & ((1UL << BAD_RANK_BITS) - 1)) != own) return;
  if (element < first_element || element >= first_element + count) return;
  if (!isfinite(AT(float, part)[element - first_element])) sums->bad = (element + 1) << BAD_RANK_BITS | rank;
}

static void add_sums(StepSums *to, global const StepSums *from) {
  if (to->who == 0 && !isfinite(from->loss)) to->who = from->who;
  to->squares += from->squares;
  if (from->bad != 0 && (to->bad == 0 || from->bad < to->bad)) to->bad = from->bad;
  to->loss += from->loss;
  to->correct += from->correct;
  to->samples += from->samples;
  to->stop += from->stop;
  to->saving += from->saving;
}

TASK sum_up(FAULT, PLACE(total), PLACE(a), PLACE(b), PLACE(c), PLACE(d), uint parts) {
  RETURN_IF_ENDED;
  StepSums sums = {0};
  add_sums(&sums, AT(StepSums, a));
  if (parts > 1) add_sums(&sums, AT(StepSums, b));
  if (parts > 2) add_sums(&sums, AT(StepSums, c));
  if (parts > 3) add_sums(&sums, AT(StepSums, d));
  *AT(StepSums, total) = sums;
}
