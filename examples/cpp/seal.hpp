// Whether an exported folder is as `nfad export` wrote it: SHA-256, just enough JSON, and what is sealed.
//
// The seal in model.json is the SHA-256 of all else in it, written in one way: names in order, no white space, ASCII.
// Numbers stand there as in the file, so none is read here. The files beside it are sealed by their checksums. It tells
// damage and carelessness; against intent there is the signature, an HMAC-SHA256 by whoever has the key.

#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>

namespace seal {

inline std::string digest(std::string text) {
    static constexpr std::array<std::uint32_t, 64> k{  // FIPS 180-4, 4.2.2
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
        0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
        0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
        0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
        0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
        0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
        0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
        0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
    std::array<std::uint32_t, 8> state{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                       0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    const std::uint64_t bits = 8 * static_cast<std::uint64_t>(text.size());
    text += '\x80';
    text.append((120 - text.size() % 64) % 64, '\0');
    for (int i = 56; i >= 0; i -= 8) text += static_cast<char>(bits >> i);
    auto turned = [](std::uint32_t x, int by) { return x >> by | x << (32 - by); };
    for (std::size_t block = 0; block < text.size(); block += 64) {
        std::array<std::uint32_t, 64> w{};
        for (std::size_t i = 0; i < 64; ++i) w[i / 4] = w[i / 4] << 8 | static_cast<std::uint8_t>(text[block + i]);
        for (std::size_t i = 16; i < 64; ++i) {
            const auto a = turned(w[i - 15], 7) ^ turned(w[i - 15], 18) ^ w[i - 15] >> 3;
            const auto b = turned(w[i - 2], 17) ^ turned(w[i - 2], 19) ^ w[i - 2] >> 10;
            w[i] = w[i - 16] + a + w[i - 7] + b;
        }
        auto [a, b, c, d, e, f, g, h] = state;
        for (std::size_t i = 0; i < 64; ++i) {
            const auto one = h + (turned(e, 6) ^ turned(e, 11) ^ turned(e, 25)) + ((e & f) ^ (~e & g)) + k[i] + w[i];
            const auto two = (turned(a, 2) ^ turned(a, 13) ^ turned(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
            h = g, g = f, f = e, e = d + one, d = c, c = b, b = a, a = one + two;
        }
        const std::array<std::uint32_t, 8> last{a, b, c, d, e, f, g, h};
        for (std::size_t i = 0; i < 8; ++i) state[i] += last[i];
    }
    std::string found;
    for (const auto value : state)
        for (int i = 24; i >= 0; i -= 8) found += static_cast<char>(value >> i);
    return found;
}

inline std::string hexadecimal(const std::string& bytes) {
    std::string found;
    for (const unsigned char byte : bytes) found += {"0123456789abcdef"[byte >> 4], "0123456789abcdef"[byte & 15]};
    return found;
}

inline std::string sha256(const std::string& text) { return hexadecimal(digest(text)); }

inline std::string hmac_sha256(std::string key, const std::string& text) {
    if (key.size() > 64) key = digest(key);
    key.resize(64, '\0');
    std::string inner = key, outer = key;
    for (auto& each : inner) each ^= 0x36;
    for (auto& each : outer) each ^= 0x5c;
    return hexadecimal(digest(outer + digest(inner + text)));
}

inline std::string content(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error(path.string() + " is missing or cannot be read; copy the folder again");
    return {std::istreambuf_iterator<char>(file), {}};
}

// By its name as it stands, since UTF-8 sorts as its letters do: name and value as the seal has them.
using Members = std::map<std::string, std::pair<std::string, std::string>>;

inline std::string canonical(const Members& members) {
    std::string found;
    for (const auto& [_, member] : members) found += (found.empty() ? "" : ",") + member.first + ":" + member.second;
    return "{" + found + "}";
}

// Reads one JSON value and gives it back as the seal has it.
class Json {
  public:
    explicit Json(const std::string& text) : text_(text) {}

    // The members of the one object that the text is, each written anew.
    Members members() {
        auto found = object();
        if (next() != '\0') throw std::runtime_error("more behind its end");
        return found;
    }

  private:
    char next() {
        while (at_ < text_.size() && std::string(" \n\r\t").find(text_[at_]) != std::string::npos) ++at_;
        return at_ < text_.size() ? text_[at_] : '\0';
    }

    void take(char wanted) {
        if (next() != wanted) throw std::runtime_error(std::string("no ") + wanted);
        ++at_;
    }

    Members object() {
        Members found;
        take('{');
        if (next() != '}')
            do {
                next();
                const auto begin = at_ + 1;
                const auto name = string();
                const auto plain = text_.substr(begin, at_ - 1 - begin);
                take(':');
                if (!found.emplace(plain, std::make_pair(name, value())).second) throw std::runtime_error("a name stands twice");
            } while (more());
        take('}');
        return found;
    }

    bool more() {
        const bool is = next() == ',';
        at_ += is;
        return is;
    }

    std::string value() {
        if (++depth_ > 50) throw std::runtime_error("too deep");
        std::string found;
        if (next() == '{') {
            found = canonical(object());
        } else if (next() == '[') {
            take('[');
            if (next() != ']')
                do found += (found.empty() ? "" : ",") + value();
                while (more());
            take(']');
            found = "[" + found + "]";
        } else if (next() == '"') {
            found = string();
        } else {
            const auto end = std::min(text_.find_first_of(" \n\r\t,]}", at_), text_.size());
            found = text_.substr(at_, end - at_);
            at_ = end;
            if (found.empty()) throw std::runtime_error("no value");
        }
        --depth_;
        return found;
    }

    // With its quotes. What is no ASCII becomes UTF-16 escapes, as Python writes it; escapes stay as they are.
    std::string string() {
        take('"');
        std::string found = "\"";
        while (at_ < text_.size() && text_[at_] != '"') {
            const auto first = static_cast<unsigned char>(text_[at_++]);
            found += static_cast<char>(first);
            if (first == '\\' && at_ < text_.size()) found += text_[at_++];
            if (first < 0x7f) continue;
            found.pop_back();
            const int more = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : first >= 0x80 ? 1 : 0;
            std::uint32_t letter = more ? first & (0x3f >> more) : first;
            for (int i = 0; i < more && at_ < text_.size(); ++i) letter = letter << 6 | (text_[at_++] & 0x3f);
            if (letter >= 0x10000) {
                escape(found, 0xd800 + ((letter - 0x10000) >> 10));
                letter = 0xdc00 + ((letter - 0x10000) & 0x3ff);
            }
            escape(found, letter);
        }
        take('"');
        return found + '"';
    }

    static void escape(std::string& found, std::uint32_t unit) {
        const std::string both{static_cast<char>(unit >> 8), static_cast<char>(unit)};
        found += "\\u" + hexadecimal(both);
    }

    const std::string& text_;
    std::size_t at_ = 0;
    int depth_ = 0;
};

// Throws, in one sentence, unless the folder is as it was exported and, with a key, by whoever has it.
inline void check(const std::filesystem::path& folder, const std::string& key = "") {
    const auto path = folder / "model.json";
    const auto text = content(path);
    Members members, files;
    try {
        members = Json(text).members();
        files = Json(members["files"].second).members();
    } catch (const std::exception& error) {
        throw std::runtime_error(path.string() + " was not written by `nfad export`, or is incomplete (" +
                                 error.what() + "); copy the folder again");
    }
    const auto given = members["seal"].second;
    members.erase("seal");
    if (given != '"' + sha256(canonical(members)) + '"')
        throw std::runtime_error(path.string() +
                                 " was changed after the export (its seal differs); copy the folder again");
    if (!key.empty()) {
        const auto signature = members["signature"].second;
        members.erase("signature");
        if (signature != '"' + hmac_sha256(key, canonical(members)) + '"')
            throw std::runtime_error(path.string() + " was not signed with this key; use the key of the export");
    }
    for (const std::string name : {"model.bin", "model.xml"})
        if (files[name].second != '"' + sha256(content(folder / name)) + '"')
            throw std::runtime_error((folder / name).string() +
                                     " was changed after the export (its checksum differs); export it again");
}

}  // namespace seal
