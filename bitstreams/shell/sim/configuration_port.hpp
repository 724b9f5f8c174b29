// Stand-ins for what surrounds the shell on a part: ICAPE3, the configuration logic behind it, and the regions.
//
// The port takes packets (UG570): synchronisation, IDCODE, FAR, CMD, FDRI, CRC, DESYNC. What it does not know is an error,
// which is more than a device promises. Frames make a region of what holds a chain ROM (crates/core/bitstream, `rom.rs`); all
// test images name the same frames, so they go to the one region that was held in reset since the stream's synchronisation.
// While a region is written, and while no ROM is found in it, it says something else in each cycle.
//
// At each cycle the rule is checked that all of this is about: a region is coupled only if what was written to it last was a
// whole stream without error, with a valid ROM in it.

#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <vector>

namespace snic {

constexpr unsigned ROM_WORDS = 12;
using Rom = std::array<uint32_t, ROM_WORDS>;

// What a slot's ROM says of its NT: cycles, kbit/s, packets in a second (zero: any number).
using RomSlot = std::array<uint32_t, 3>;
using RomSlots = std::array<RomSlot, 8>;
struct ChainRom {
    Rom words{};
    RomSlots slots{};
    bool operator!=(const ChainRom& other) const { return words != other.words || slots != other.slots; }
};

// What goes wrong, as a test asks for it. Numbers are of words behind the next synchronisation.
enum class Fault : uint32_t {
    None = 0,
    ErrorAfter = 1,      // PRERROR
    GoneAfter = 2,       // AVAIL goes low, and what comes is not taken, until there is no fault
    NeverDone = 3,       // PRDONE stays low behind DESYNC
    // Of ROMs that are written:
    RomChanges = 4,    // the last word is another one from the second time on that it is read
    RomEmpty = 5,      // there is no code of an NT
    RomGap = 6,        // the second code is zero, the third is not
    RomNobody = 7,     // the identity is zero
    MemorySilent = 8,  // reads of the memory are not answered, until there is no fault
};

struct Faults {
    Fault kind = Fault::None;
    uint32_t number = 0;
};

inline uint32_t crc32c_bit(uint32_t crc, unsigned bit) {
    const bool odd = ((crc ^ bit) & 1) != 0;
    return crc >> 1 ^ (odd ? 0x82f63b78u : 0);
}

// The CRC of the configuration logic: the bits of a word, then those of the register's address.
inline uint32_t configuration_crc(uint32_t crc, unsigned address, uint32_t word) {
    for (unsigned i = 0; i < 32; i++) crc = crc32c_bit(crc, word >> i & 1);
    for (unsigned i = 0; i < 5; i++) crc = crc32c_bit(crc, address >> i & 1);
    return crc;
}

// CRC-32 of IEEE 802.3 over words, the most significant byte first.
inline uint32_t crc32(const uint32_t* words, size_t count) {
    uint32_t crc = ~0u;
    for (size_t i = 0; i < count; i++)
        for (int shift = 24; shift >= 0; shift -= 8) {
            crc ^= words[i] >> shift & 0xff;
            for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
        }
    return ~crc;
}

// A chain ROM of a test image with the identity of a build in it: what the region of it says.
inline std::optional<ChainRom> decode_rom(const std::vector<uint32_t>& words, size_t at) {
    const size_t have = words.size() - at;
    if (have < 2 || words[at] != 0x534e4943) return std::nullopt;
    const unsigned version = words[at + 1] >> 16, slots = words[at + 1] & 0xffff;
    if ((version != 2 && version != 4) || slots < 1 || slots > 8) return std::nullopt;
    const size_t slot_words = version == 4 ? 6 : 4, identity = 2 + slots * slot_words;
    if (have < identity + 5 || words[at + identity + 4] != crc32(&words[at], identity + 4)) return std::nullopt;
    ChainRom rom;
    for (size_t i = 0; i < slots; i++) {
        const uint32_t* slot = &words[at + 2 + i * slot_words];
        if (slot[0] == 0 || slot[2] == 0 || (slot[3] & 0xfe) != 0) return std::nullopt;
        rom.words[i] = slot[0];
        rom.slots[i] = {slot[1], slot[2], slot_words > 4 ? slot[4] : 0};
    }
    for (size_t i = 0; i < 4; i++) rom.words[8 + i] = words[at + identity + i];
    return rom;
}

// The one ROM in the frames.
inline std::optional<ChainRom> find_rom(const std::vector<uint32_t>& frames) {
    std::optional<ChainRom> found;
    for (size_t at = 0; at < frames.size(); at++) {
        const auto rom = decode_rom(frames, at);
        if (rom && found && *rom != *found) return std::nullopt;
        if (rom) found = rom;
    }
    return found;
}

template <typename Draw>
class Regions {
public:
    Regions(Draw& draw, unsigned count, const Faults& faults) : draw_(draw), faults_(faults), regions_(count) {}

    // It is being written.
    void wreck(unsigned number) { regions_[number] = {}; }
    // It was written, without a ROM or with this one.
    void hold(unsigned number, const std::optional<ChainRom>& rom) {
        Region& region = regions_[number];
        region = {};
        if (!rom) return;
        region = {rom->words, rom->slots, true, 0, 0};
        Rom& words = *region.rom;
        const Fault kind = faults_.kind;
        if (kind == Fault::RomEmpty) std::fill_n(words.begin(), 8, 0);
        if (kind == Fault::RomGap) words[2] = words[0], words[1] = 0;
        if (kind == Fault::RomNobody) words[8] = words[9] = words[10] = words[11] = 0;
        region.is_good = kind == Fault::None;
    }
    // The NTs in it: zeros where there are none.
    const RomSlots& slots(unsigned number) const { return regions_[number].slots; }
    bool may_be_coupled(unsigned number) const { return regions_[number].is_good; }

    // What the region says a cycle after this address.
    uint32_t word(unsigned number, unsigned address) {
        Region& region = regions_[number];
        const uint32_t noise = draw_.bits();
        if (!region.rom) return noise;
        if (address >= ROM_WORDS) return 0;
        const bool is_last = address == ROM_WORDS - 1;
        region.reads_of_last += is_last && region.address != address;
        region.address = address;
        const uint32_t word = (*region.rom)[address];
        if (faults_.kind != Fault::RomChanges || !is_last || region.is_good) return word;
        return word ^ (region.reads_of_last > 1 ? 1u : 0u);
    }

private:
    struct Region {
        std::optional<Rom> rom;
        RomSlots slots{};
        bool is_good = false;
        unsigned reads_of_last = 0, address = 0;
    };
    Draw& draw_;
    const Faults& faults_;
    std::vector<Region> regions_;
};

// ICAPE3 at its own clock. What it says is there some cycles later.
template <typename Draw>
class ConfigurationPort {
public:
    ConfigurationPort(Regions<Draw>& regions, const Faults& faults, uint32_t idcode)
        : regions_(regions), faults_(faults), idcode_(idcode) {
        said_.fill(now());
    }

    struct Pins {
        bool avail, prdone, prerror;
        uint32_t o;
    };
    const Pins& pins() const { return said_[said_at_]; }
    uint32_t streams() const { return streams_; }
    uint32_t aborts() const { return aborts_; }

    // An edge of the port's clock.
    void edge(bool csib, bool rdwrb, uint32_t i, uint32_t held_in_reset) {
        reset_throughout_ &= held_in_reset;
        if (is_available()) {
            const bool is_selected = !csib;
            if (is_selected && was_selected_ && rdwrb != was_reading_) abort();
            else if (is_selected && !rdwrb) take(mirrored(i), held_in_reset);
            was_selected_ = is_selected;
            was_reading_ = rdwrb;
        }
        said_[said_at_] = now();
        said_at_ = (said_at_ + 1) % said_.size();
    }

private:
    enum Register { CRC = 0, FAR = 1, FDRI = 2, CMD = 4, CTL0 = 5, MASK = 6, COR0 = 9, IDCODE = 12, CTL1 = 24 };

    static uint32_t mirrored(uint32_t pins) {
        uint32_t word = 0;
        for (unsigned byte = 0; byte < 4; byte++)
            for (unsigned bit = 0; bit < 8; bit++)
                word |= (pins >> (8 * byte + 7 - bit) & 1) << (8 * byte + bit);
        return word;
    }

    bool is_available() const { return !(is_synced_ && faults_.kind == Fault::GoneAfter && words_ >= faults_.number); }

    Pins now() const {
        const bool is_done = !is_synced_ && !(faults_.kind == Fault::NeverDone && streams_ > 0);
        const uint32_t status = (has_error_ ? 0u : 0x80u) | (is_synced_ ? 0x40u : 0u) | 0x1bu;
        return {is_available(), is_done, has_error_, status};
    }

    void abort() {
        if (is_synced_) aborts_++;
        leave();
    }

    void leave() {
        is_synced_ = false;
        left_ = 0;
        expects_long_ = false;
    }

    void error() {
        has_error_ = true;
        leave();
    }

    void take(uint32_t word, uint32_t held_in_reset) {
        if (!is_synced_) {
            if (word == 0xaa995566) sync(held_in_reset);
            return;
        }
        words_++;
        if (faults_.kind == Fault::ErrorAfter && words_ >= faults_.number) return error();
        if (left_ > 0) {
            left_--;
            return data(word);
        }
        header(word);
    }

    void sync(uint32_t held_in_reset) {
        is_synced_ = true;
        has_error_ = has_idcode_ = masks_frames_ = writes_ = false;
        words_ = 0;
        command_ = crc_ = mask_ = 0;
        frames_.clear();
        reset_throughout_ = held_in_reset;
    }

    void header(uint32_t word) {
        const unsigned type = word >> 29, operation = word >> 27 & 3;
        if (expects_long_) {
            if (type != 2 || operation != 2) return error();
            left_ = word & 0x07ffffff;
            expects_long_ = false;
            return;
        }
        if (word == 0x20000000) return;
        if (type != 1 || operation != 2 || (word & 0x07fc1800) != 0) return error();
        register_ = word >> 13 & 0x1f;
        left_ = word & 0x7ff;
        expects_long_ = left_ == 0 && register_ == FDRI;
    }

    void data(uint32_t word) {
        if (register_ == CRC) {
            if (word != crc_) return error();
            crc_ = 0;
            return;
        }
        crc_ = configuration_crc(crc_, register_, word);
        switch (register_) {
            case FAR: case CTL0: case COR0: return;
            case MASK: mask_ = word; return;
            case CTL1: if (mask_ >> 17 & 1) masks_frames_ = word >> 17 & 1; return;
            case IDCODE: has_idcode_ = word == idcode_; if (!has_idcode_) error(); return;
            case CMD: return command(word);
            case FDRI: return frame(word);
            default: return error();
        }
    }

    void command(uint32_t word) {
        command_ = word;
        if (word == 7) crc_ = 0;  // RCRC
        if (word != 13) return;   // DESYNC
        if (writes_) regions_.hold(region_, find_rom(frames_));
        streams_++;
        leave();
    }

    void frame(uint32_t word) {
        if (!has_idcode_ || command_ != 1) return error();  // WCFG
        if (masks_frames_) return;
        if (!writes_) {
            const uint32_t in_reset = reset_throughout_;
            if (in_reset == 0 || (in_reset & (in_reset - 1)) != 0) {
                std::fprintf(stderr, "snic-rtl: frames while regions %#x are held in reset\n", in_reset);
                std::_Exit(3);
            }
            region_ = static_cast<unsigned>(__builtin_ctz(in_reset));
            writes_ = true;
        }
        regions_.wreck(region_);
        frames_.push_back(word);
    }

    Regions<Draw>& regions_;
    const Faults& faults_;
    const uint32_t idcode_;
    bool was_selected_ = false, was_reading_ = false;
    bool is_synced_ = false, has_error_ = false, has_idcode_ = false, masks_frames_ = false, writes_ = false;
    bool expects_long_ = false;
    unsigned register_ = 0, region_ = 0;
    uint32_t left_ = 0, command_ = 0, crc_ = 0, mask_ = 0, words_ = 0, reset_throughout_ = 0;
    uint32_t streams_ = 0, aborts_ = 0;
    std::vector<uint32_t> frames_;
    std::array<Pins, 3> said_;
    size_t said_at_ = 0;
};

}  // namespace snic
