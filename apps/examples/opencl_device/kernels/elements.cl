// Copies and sums. Up to four parts are added at a time, in their order; the host adds up more in several calls.

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

TASK weigh(FAULT, PLACE(to), PLACE(anchor), PLACE(from), PLACE(sums), ulong count) {
  RETURN_IF_ENDED;
  global float *to = AT(float, to);
  global const float *anchor = AT(float, anchor), *from = AT(float, from);
  const float samples = (float)AT(StepSums, sums)->samples;
  ulong i = get_global_id(0) * CHUNK_ELEMENTS;
  const ulong end = min(i + CHUNK_ELEMENTS, count);
  for (; i < end; ++i) to[i] = samples * (anchor[i] - from[i]);
}

TASK clear(FAULT, PLACE(to), ulong size) {
  RETURN_IF_ENDED;
  global uchar *to = AT(uchar, to);
  ulong i = get_global_id(0) * CHUNK_BYTES;
  const ulong end = min(i + CHUNK_BYTES, size);
  for (; i < end; ++i) to[i] = 0;
}

static void add_sums(StepSums *to, global const StepSums *from) {
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
