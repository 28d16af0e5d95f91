#include "runtime/data/detail/digit_strokes.hpp"

namespace troupe::detail {
namespace {

constexpr bool kCorner = true;

using Styles = std::vector<Style>;

// One way to write a digit is one paragraph.
// clang-format off

Styles zero() {
  return {
      // an oval, begun at the top
      {3, {{{.54F, .01F}, {.27F, .16F}, {.17F, .52F}, {.28F, .87F}, {.51F, .99F}, {.74F, .84F}, {.82F, .48F},
            {.73F, .15F}, {.52F, .02F}}}},
      // narrow, the end running over the start
      {2, {{{.62F, .09F}, {.42F, .06F}, {.25F, .32F}, {.24F, .68F}, {.40F, .97F}, {.62F, .88F}, {.75F, .57F},
            {.72F, .22F}, {.54F, .03F}, {.38F, .14F}}}},
      // round, left open at the top
      {1, {{{.44F, .05F}, {.20F, .24F}, {.13F, .60F}, {.34F, .95F}, {.65F, .94F}, {.86F, .62F}, {.80F, .22F},
            {.60F, .04F}}}},
  };
}

Styles one() {
  return {
      {5, {{{.50F, .0F}, {.50F, .5F}, {.50F, 1.F}}}},                                          // a bar
      {2, {{{.30F, .24F}, {.44F, .14F}, {.54F, .0F, kCorner}, {.53F, .5F}, {.52F, 1.F}}}},     // with a flag
      {1, {{{.30F, .22F}, {.54F, .0F, kCorner}, {.53F, 1.F}}, {{.24F, .99F}, {.80F, .98F}}}},  // flag and serif
      {2, {{{.56F, .0F}, {.52F, .35F}, {.47F, .7F}, {.46F, 1.F}}}},                            // a little bent
  };
}

Styles two() {
  return {
      // a neck, a corner, a foot
      {3, {{{.20F, .24F}, {.34F, .05F}, {.62F, .03F}, {.77F, .23F}, {.66F, .50F}, {.42F, .76F},
            {.17F, .97F, kCorner}, {.50F, .95F}, {.86F, .96F}}}},
      // a loop at the foot
      {3, {{{.18F, .20F}, {.40F, .02F}, {.68F, .08F}, {.74F, .32F}, {.58F, .62F}, {.33F, .92F}, {.14F, .95F},
            {.13F, .80F}, {.30F, .77F}, {.56F, .90F}, {.76F, .97F}, {.94F, .86F}}}},
      // like a z
      {1, {{{.20F, .10F}, {.48F, .02F}, {.74F, .12F}, {.68F, .36F}, {.20F, .94F, kCorner}, {.82F, .93F}}}},
      // a swan's neck with a wavy foot
      {2, {{{.24F, .30F}, {.30F, .08F}, {.54F, .0F}, {.76F, .16F}, {.70F, .44F}, {.40F, .80F}, {.20F, .92F},
            {.36F, .86F}, {.60F, .97F}, {.84F, .90F}}}},
  };
}

Styles three() {
  return {
      {3, {{{.20F, .13F}, {.44F, .01F}, {.72F, .13F}, {.69F, .35F}, {.43F, .47F, kCorner}, {.72F, .55F},
            {.80F, .78F}, {.55F, .99F}, {.19F, .89F}}}},
      // a flat roof
      {1, {{{.20F, .05F}, {.76F, .04F, kCorner}, {.45F, .41F, kCorner}, {.75F, .54F}, {.78F, .80F}, {.50F, .99F},
            {.17F, .87F}}}},
      // a small loop in the middle
      {2, {{{.22F, .15F}, {.48F, .01F}, {.72F, .17F}, {.60F, .40F}, {.42F, .50F}, {.36F, .45F}, {.50F, .44F},
            {.74F, .58F}, {.77F, .82F}, {.48F, .99F}, {.17F, .92F}}}},
      // one sweep, hardly a waist
      {2, {{{.24F, .08F}, {.58F, .02F}, {.72F, .20F}, {.56F, .42F}, {.66F, .54F}, {.76F, .74F}, {.56F, .95F},
            {.14F, .98F}}}},
  };
}

Styles four() {
  return {
      // open, two strokes
      {3, {{{.24F, .05F}, {.18F, .32F}, {.15F, .55F, kCorner}, {.48F, .56F}, {.86F, .52F}},
        {{.74F, .08F}, {.69F, .5F}, {.66F, 1.F}}}},
      // a rounded cup with a stem
      {3, {{{.20F, .06F}, {.17F, .34F}, {.26F, .53F}, {.52F, .54F}, {.76F, .40F}},
        {{.80F, .01F}, {.75F, .45F}, {.71F, 1.F}}}},
      // closed: a triangle on a stem
      {1, {{{.62F, .01F}, {.38F, .34F}, {.12F, .65F, kCorner}, {.52F, .65F}, {.92F, .63F}},
        {{.63F, .02F}, {.62F, .5F}, {.60F, 1.F}}}},
      // in one stroke
      {1, {{{.26F, .06F}, {.19F, .36F}, {.36F, .54F}, {.64F, .44F}, {.79F, .10F, kCorner}, {.71F, .52F},
            {.66F, 1.F}}}},
  };
}

Styles five() {
  return {
      {3, {{{.76F, .03F}, {.32F, .05F, kCorner}, {.27F, .42F, kCorner}, {.52F, .37F}, {.77F, .55F}, {.74F, .82F},
            {.48F, .99F}, {.16F, .91F}}}},
      // the hat drawn last
      {3, {{{.32F, .06F}, {.27F, .43F, kCorner}, {.56F, .38F}, {.77F, .60F}, {.69F, .88F}, {.42F, .99F},
            {.16F, .88F}},
        {{.31F, .06F}, {.58F, .04F}, {.86F, .01F}}}},
      // like an s
      {2, {{{.78F, .05F}, {.46F, .05F}, {.28F, .22F}, {.40F, .42F}, {.66F, .56F}, {.69F, .81F}, {.44F, .98F},
            {.14F, .90F}}}},
  };
}

Styles six() {
  return {
      {3, {{{.68F, .02F}, {.42F, .20F}, {.23F, .58F}, {.29F, .91F}, {.54F, .99F}, {.74F, .82F}, {.65F, .59F},
            {.43F, .56F}, {.25F, .74F}}}},
      // a straight back, a small bowl
      {2, {{{.50F, .0F}, {.31F, .40F}, {.23F, .77F}, {.41F, .99F}, {.67F, .89F}, {.66F, .67F}, {.46F, .61F},
            {.26F, .79F}}}},
      // curled up
      {2, {{{.74F, .13F}, {.50F, .03F}, {.26F, .30F}, {.20F, .66F}, {.36F, .96F}, {.66F, .95F}, {.80F, .70F},
            {.60F, .50F}, {.34F, .58F}, {.23F, .78F}}}},
      // the bowl stays open
      {1, {{{.62F, .01F}, {.38F, .24F}, {.23F, .60F}, {.27F, .90F}, {.50F, .99F}, {.71F, .84F}, {.66F, .63F},
            {.48F, .62F}}}},
  };
}

Styles seven() {
  return {
      {4, {{{.18F, .09F}, {.48F, .07F}, {.80F, .06F, kCorner}, {.60F, .46F}, {.44F, 1.F}}}},
      // crossed
      {2, {{{.17F, .09F}, {.80F, .05F, kCorner}, {.60F, .46F}, {.42F, 1.F}}, {{.34F, .53F}, {.56F, .50F},
            {.80F, .49F}}}},
      // with a hook
      {2, {{{.19F, .26F}, {.21F, .07F, kCorner}, {.50F, .08F}, {.82F, .05F, kCorner}, {.57F, .50F}, {.46F, 1.F}}}},
      // rounded
      {2, {{{.16F, .16F}, {.34F, .04F}, {.58F, .09F}, {.79F, .04F}, {.78F, .20F}, {.58F, .56F}, {.48F, 1.F}}}},
  };
}

Styles eight() {
  return {
      // an s, closed on the way back
      {4, {{{.70F, .14F}, {.50F, .01F}, {.28F, .14F}, {.35F, .38F}, {.65F, .59F}, {.74F, .82F}, {.50F, .99F},
            {.26F, .83F}, {.36F, .59F}, {.64F, .37F}, {.72F, .16F}, {.60F, .04F}}}},
      // two bowls
      {1, {{{.52F, .01F}, {.30F, .12F}, {.30F, .34F}, {.50F, .45F}, {.70F, .33F}, {.70F, .12F}, {.50F, .02F}},
        {{.50F, .46F}, {.25F, .62F}, {.26F, .88F}, {.51F, .99F}, {.76F, .87F}, {.75F, .62F}, {.52F, .46F}}}},
      // narrow, left open at the top right
      {2, {{{.72F, .08F}, {.46F, .02F}, {.30F, .18F}, {.42F, .42F}, {.62F, .66F}, {.58F, .92F}, {.38F, .98F},
            {.30F, .80F}, {.48F, .52F}, {.68F, .26F}, {.78F, .04F}}}},
  };
}

Styles nine() {
  return {
      {3, {{{.74F, .19F}, {.51F, .02F}, {.26F, .18F}, {.29F, .44F}, {.54F, .50F}, {.73F, .30F},
            {.76F, .12F, kCorner}, {.72F, .56F}, {.66F, 1.F}}}},
      // a curled tail
      {2, {{{.72F, .17F}, {.48F, .02F}, {.25F, .20F}, {.32F, .46F}, {.58F, .47F}, {.75F, .20F, kCorner},
            {.75F, .66F}, {.56F, .97F}, {.25F, .91F}}}},
      // a loop that runs on into the tail
      {2, {{{.70F, .30F}, {.66F, .08F}, {.42F, .04F}, {.25F, .26F}, {.36F, .46F}, {.60F, .36F}, {.72F, .12F},
            {.70F, .40F}, {.58F, .72F}, {.50F, 1.F}}}},
      // the bowl stays open
      {1, {{{.68F, .07F}, {.40F, .05F}, {.24F, .25F}, {.36F, .45F}, {.60F, .42F}, {.76F, .14F, kCorner},
            {.70F, .60F}, {.66F, 1.F}}}},
  };
}

// clang-format on

}  // namespace

const std::vector<Style>& styles_of(std::uint32_t digit) {
  static const std::array<Styles, 10> all{zero(), one(), two(),   three(), four(),
                                          five(), six(), seven(), eight(), nine()};
  return all.at(digit);
}

}  // namespace troupe::detail
