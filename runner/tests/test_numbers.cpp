#include <cmath>
#include <random>
#include <vector>

#include "check.h"
#include "decimal.h"
#include "exact_sum.h"
#include "number.h"
#include "number_sum.h"

using stoker::Decimal;
using stoker::ExactSum;
using stoker::NumberSum;

namespace {

std::string sum_of(const std::string& array, unsigned threads = 1) {
  return stoker::sum_array(array, "numbers", threads).to_json();
}

double exact(const std::vector<double>& values) {
  ExactSum sum;
  for (const double value : values) sum.add(value);
  return sum.rounded();
}

/// Many numbers of wildly different sizes, and enough text that threads share it.
std::string wild_array(std::size_t count) {
  std::mt19937_64 random(7);
  std::string out = "[";
  for (std::size_t i = 0; i < count; ++i) {
    if (i > 0) out += i % 3 == 0 ? " ,\n" : ",";
    const double value = std::ldexp(static_cast<double>(random() >> 11), static_cast<int>(random() % 200) - 150);
    out += random() % 4 == 0 ? std::to_string(random()) : stoker::real_to_text(random() % 2 == 0 ? value : -value);
  }
  return out + "]";
}

}  // namespace

TEST(decimals_add_up) {
  Decimal sum("999999999999999999999999999999");
  sum.add(Decimal("1"));
  EQUAL(sum.to_text(), "1000000000000000000000000000000");
  sum.add(Decimal("-1000000000000000000000000000001"));
  EQUAL(sum.to_text(), "-1");
  sum.add(Decimal("1"));
  EQUAL(sum.to_text(), "0");
  EQUAL(Decimal("-0").to_text(), "0");
  EQUAL(Decimal(-(stoker::Int128{1} << 126) * 2).to_text(), "-170141183460469231731687303715884105728");
}

TEST(reals_add_up_exactly) {
  EQUAL(exact({}), 0.0);
  EQUAL(exact({0.1, 0.2, 0.3, -0.6}), 5.551115123125783e-17 - 2.7755575615628914e-17);
  EQUAL(exact({1e100, 1.0, -1e100}), 1.0);
  EQUAL(exact({1e308, 1e308, -1e308}), 1e308);
  EQUAL(exact({5e-324, 5e-324}), 1e-323);
  EQUAL(exact({1e16, 1.0}), 1e16);                        // a tie, to the even side
  EQUAL(exact({1e16, 1.0, 5e-324}), 10000000000000002.0);  // the least bit breaks it
  EQUAL(exact({-1e16, -1.0, -5e-324}), -10000000000000002.0);
  CHECK(std::isinf(exact({1e308, 1e308})));
  CHECK(!std::signbit(exact({-0.0, -0.0})));
  CHECK(!std::signbit(exact({1.5, -1.5})));
}

TEST(sums_of_integers_stay_integers) {
  EQUAL(sum_of("[]"), "0");
  EQUAL(sum_of("[ \n]"), "0");
  EQUAL(sum_of("[1, 2, 3]"), "6");
  EQUAL(sum_of("[9223372036854775807,9223372036854775807]"), "18446744073709551614");
  EQUAL(sum_of("[123456789012345678901234567890,-1]"), "123456789012345678901234567889");
  EQUAL(sum_of("[-0]"), "0");
}

TEST(one_real_makes_the_sum_real) {
  EQUAL(sum_of("[1, 2.0]"), "3.0");
  EQUAL(sum_of("[9007199254740993, 0.0]"), "9007199254740992.0");  // each is the nearest double first
  EQUAL(sum_of("[9007199254740993, 1.0]"), "9007199254740992.0");
  EQUAL(sum_of("[0.1,0.1,0.1,0.1,0.1,0.1,0.1,0.1,0.1,0.1]"), "1.0");
  REFUSED(sum_of("[1e308, 1e308]"));
  REFUSED(sum_of("[0.5, 1" + std::string(400, '0') + "]"));
}

TEST(sums_refuse_what_is_no_number) {
  for (const char* array : {"[1,]", "[,1]", "[1 2]", "[null]", "[true]", "[\"1\"]", "[01]", "[1.]", "[1e400]", "[-]", "[[1]]"}) {
    REFUSED(sum_of(array));
  }
  REFUSED(sum_of("[" + std::string(1001, '1') + "]"));
  const std::string largest(1000, '9');
  EQUAL(sum_of("[" + largest + "]"), largest);
  REFUSED(sum_of("[" + largest + ",1]"));
}

TEST(threads_do_not_change_a_sum) {
  const std::string array = wild_array(60'000);
  const std::string alone = sum_of(array);
  for (const unsigned threads : {2U, 3U, 7U, 16U}) EQUAL(sum_of(array, threads), alone);
}

TEST(the_first_thing_that_is_no_number_is_named) {
  std::string array = wild_array(60'000);
  array.insert(array.rfind(','), ",oops");
  try {
    sum_of(array, 8);
    CHECK(false);
  } catch (const stoker::Failure& failure) {
    EQUAL(failure.message(), "numbers[59999] is not a number that can be added");
  }
}

TEST(reals_are_written_as_short_as_possible) {
  const std::pair<double, const char*> samples[] = {
      {0.1, "0.1"},     {100.0, "100.0"}, {1e15, "1000000000000000.0"}, {1e16, "1e16"},     {1e-5, "0.00001"},
      {1e-6, "1e-6"},   {1.5e-7, "1.5e-7"}, {1234.5, "1234.5"},         {-0.0, "-0.0"},     {5e-324, "5e-324"},
      {1.7976931348623157e308, "1.7976931348623157e308"}};
  for (const auto& [value, text] : samples) EQUAL(stoker::real_to_text(value), text);
}
