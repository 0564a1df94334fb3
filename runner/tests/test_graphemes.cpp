#include "check.h"
#include "graphemes.h"

using stoker::reverse_graphemes;

TEST(clusters_stay_whole) {
  const std::string clusters[] = {
      "a", "e\u0301", "\r\n", "\U0001F468\u200D\U0001F469\u200D\U0001F467", "\U0001F1E9\U0001F1EA", "\U0001F44D\U0001F3FD",
      "\u2764\uFE0F", "\u1112\u1161\u11AB", "\uD55C", "\u0915\u094D\u0937\u093F", "\u0E01\u0E33", "1\uFE0F\u20E3"};
  for (const std::string& cluster : clusters) {
    EQUAL(reverse_graphemes(cluster), cluster);
    EQUAL(reverse_graphemes(cluster + "|"), "|" + cluster);
    EQUAL(reverse_graphemes("x" + cluster + "\n"), "\n" + cluster + "x");
  }
}

TEST(flags_pair_from_the_left) {
  EQUAL(reverse_graphemes("\U0001F1E9\U0001F1EA\U0001F1EB\U0001F1F7\U0001F1EE"),
        "\U0001F1EE\U0001F1EB\U0001F1F7\U0001F1E9\U0001F1EA");
}

TEST(what_only_looks_like_a_cluster_comes_apart) {
  EQUAL(reverse_graphemes("\n\r"), "\r\n");
  EQUAL(reverse_graphemes("\u0915\u0937"), "\u0937\u0915");
  EQUAL(reverse_graphemes("a\u200D\U0001F467"), "\U0001F467a\u200D");
  EQUAL(reverse_graphemes(std::string("a\0b", 3)), std::string("b\0a", 3));
  EQUAL(reverse_graphemes(""), "");
}
