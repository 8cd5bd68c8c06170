// Stands in for the fmt library: with Kompute's logging compiled out, its headers only format a few error texts with
// plain {} fields.
#pragma once

#include <sstream>
#include <string>
#include <string_view>

namespace fmt {

template <typename... Values>
std::string format(std::string_view pattern, const Values&... values) {
    std::ostringstream text;
    const auto put = [&](const auto& value) {
        const size_t field = pattern.find("{}");
        text << pattern.substr(0, field) << value;
        pattern.remove_prefix(field == std::string_view::npos ? pattern.size() : field + 2);
    };
    (put(values), ...);
    text << pattern;
    return text.str();
}

}  // namespace fmt
