// Stand-ins for the chains in the regions, and for the wires at the ports of packets.
//
// A chain of dummy NTs: a packet waits for each NT that it uses, as long as the NT's bandwidth and packets in a second
// make it, and takes the NT's cycles; its bytes stay as they are. It is in order. The times are exact fractions of cycles, as in
// the card model. On demand a region does what no region should: Conduct says what.

#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <numeric>
#include <vector>

#include "Vsnic_core.h"
#include "configuration_port.hpp"

namespace snic {

constexpr unsigned PORT_BYTES = 64;
constexpr uint64_t CLOCK_HZ = 250'000'000;

enum class Conduct : uint32_t {
    Good = 0,
    Swallows = 1,     // nothing that goes in comes out
    NeverReady = 2,   // nothing goes in
    Duplicates = 3,   // each packet comes out twice
    ForgesPlace = 4,  // with the tag of another packet
    ForgesRegion = 5, // with the tag of another region
    NoEnd = 6,        // a packet has no last beat
    Babbles = 7,      // packets come out that nobody sent, also while the region is not coupled
    Shorter = 8,      // a packet says that it has fewer bytes, and has fewer beats
    Longer = 9,       // it has more of both
    NoBytes = 10,     // it says that it has none
    Drops = 11,       // it says that it ends
    Late = 12,        // the tag is that of the packet before
    Stutters = 13,    // beats go in and come out now and then; nothing else is wrong
};
constexpr uint32_t CONDUCTS = 14;

// A unit that serves one thing after another at a rate.
class Meter {
public:
    void set(uint64_t per_second) {
        const uint64_t common = std::gcd(CLOCK_HZ, per_second);
        cycles_ = per_second ? CLOCK_HZ / common : 0;
        parts_ = per_second ? per_second / common : 1;
        cycle_ = part_ = 0;
    }
    // When it begins with so many things that are there now.
    uint64_t serve(uint64_t now, uint64_t things) {
        if (up() < now) cycle_ = now, part_ = 0;
        const uint64_t start = up();
        const uint64_t sum = part_ + things * cycles_;
        cycle_ += sum / parts_;
        part_ = sum % parts_;
        return start;
    }

private:
    uint64_t up() const { return cycle_ + (part_ > 0); }
    uint64_t cycles_ = 0, parts_ = 1, cycle_ = 0, part_ = 0;
};

template <typename Draw>
class Chain {
public:
    Chain(Draw& draw, unsigned number) : draw_(draw), number_(number) {}

    Conduct conduct = Conduct::Good;

    void fill(const RomSlots& slots) {
        packets_.clear();
        is_inside_ = false;
        for (size_t i = 0; i < slots.size(); i++) {
            nts_[i].latency = slots[i][0];
            nts_[i].bits.set(1000ull * slots[i][1]);
            nts_[i].has_limit = slots[i][2] != 0;
            nts_[i].packets.set(slots[i][2]);
        }
    }

    // Before the clock's edge.
    void drive(Vsnic_core& top, uint64_t now) {
        const bool may = conduct != Conduct::Stutters || draw_.one_in(3);
        set(top.regions_to_tready, conduct != Conduct::NeverReady && may);
        bool valid = false;
        if (conduct == Conduct::Babbles) {
            // What is offered stays until it is taken.
            if (!is_offered_) babble_ = {draw_.bits() % 2048, draw_.bits(), draw_.one_in(3)};
            valid = true;
            put(top, {}, babble_.bytes, babble_.tag, false, babble_.is_last);
        } else if (!packets_.empty()) {
            Packet& packet = packets_.front();
            const uint64_t at = packet.sent;
            const bool is_there = at < packet.beats.size() && packet.came[at] < now;
            valid = is_there && now >= packet.exit + at && (may || is_offered_);
            if (valid) {
                const bool is_last = packet.is_whole && at + 1 == packet.beats.size() && conduct != Conduct::NoEnd;
                put(top, packet.beats[at], packet.bytes, packet.tag, packet.drops, is_last);
            }
        }
        set(top.regions_from_tvalid, valid);
    }

    // At the edge; the region is in reset or not.
    void edge(const Vsnic_core& top, uint64_t now, bool in_reset) {
        const bool gives = (top.regions_from_tvalid >> number_ & 1) != 0;
        const bool given = gives && (top.regions_from_tready >> number_ & 1);
        is_offered_ = gives && !given;
        if (given && conduct != Conduct::Babbles && !packets_.empty()) {
            Packet& packet = packets_.front();
            const bool is_last = packet.is_whole && packet.sent + 1 == packet.beats.size();
            if (!is_last) packet.sent++;
            else if (conduct == Conduct::NoEnd) packet.came[packet.sent] = now;
            else if (packet.again-- > 0) packet.sent = 0;
            else packets_.pop_front();
        }
        if ((top.regions_to_tvalid >> number_ & 1) && (top.regions_to_tready >> number_ & 1)) take(top, now);
        if (in_reset) packets_.clear(), is_inside_ = false, is_offered_ = false;
    }

private:
    struct Nt {
        uint64_t latency = 0;
        bool has_limit = false;
        Meter bits, packets;
    };
    using Beat = std::array<uint32_t, 16>;
    struct Packet {
        uint64_t exit = 0, sent = 0;
        uint32_t bytes = 0, tag = 0;
        bool drops = false, is_whole = false;
        unsigned again = 0;
        std::vector<Beat> beats;
        std::vector<uint64_t> came;
    };
    struct Babble {
        uint32_t bytes = 0, tag = 0;
        bool is_last = false;
    };

    template <typename Bits>
    void set(Bits& bits, bool on) {
        bits = static_cast<Bits>((bits & ~(1u << number_)) | static_cast<unsigned>(on) << number_);
    }

    void put(Vsnic_core& top, const Beat& beat, uint32_t bytes, uint32_t tag, bool drops, bool is_last) {
        std::memcpy(&top.regions_from_tdata[16 * number_], beat.data(), PORT_BYTES);
        auto& lengths = top.regions_from_bytes[number_ / 2];
        const unsigned shift = 16 * (number_ % 2);
        lengths = (lengths & ~(0xffffu << shift)) | (bytes & 0xffff) << shift;
        top.regions_from_tag[number_] = tag;
        set(top.regions_from_drop, drops);
        set(top.regions_from_tlast, is_last);
    }

    // The time at which a packet is through all NTs that it uses.
    uint64_t pass(uint64_t now, unsigned used, uint64_t bits) {
        for (size_t i = 0; i < nts_.size(); i++) {
            if (!(used >> i & 1)) continue;
            if (nts_[i].has_limit) now = nts_[i].packets.serve(now, 1);
            now = nts_[i].bits.serve(now, bits) + nts_[i].latency;
        }
        return std::max(now, last_exit_);
    }

    void take(const Vsnic_core& top, uint64_t now) {
        const bool is_last = (top.regions_to_tlast >> number_ & 1) != 0;
        if (!is_inside_) begin(top, now);
        is_inside_ = !is_last;
        if (conduct == Conduct::Swallows) return packets_.clear();
        if (packets_.empty()) return;
        Packet& packet = packets_.back();
        Beat beat;
        std::memcpy(beat.data(), &top.regions_to_tdata[16 * number_], PORT_BYTES);
        packet.beats.push_back(beat);
        packet.came.push_back(now);
        if (!is_last) return;
        packet.is_whole = true;
        if (conduct == Conduct::Longer) packet.beats.push_back(beat), packet.came.push_back(now);
        if (conduct == Conduct::Shorter && packet.beats.size() > 1) packet.beats.pop_back();
    }

    void begin(const Vsnic_core& top, uint64_t now) {
        Packet packet;
        packet.bytes = top.regions_to_bytes[number_ / 2] >> (16 * (number_ % 2)) & 0xffff;
        packet.tag = top.regions_to_tag[number_];
        const unsigned used = top.regions_to_used[number_ / 4] >> (8 * (number_ % 4)) & 0xff;
        packet.exit = last_exit_ = pass(now, used, 8ull * packet.bytes);
        const uint32_t true_tag = packet.tag;
        switch (conduct) {
            case Conduct::Duplicates: packet.again = 1; break;
            case Conduct::ForgesPlace: packet.tag ^= 1u << draw_.under(9); break;
            case Conduct::ForgesRegion: packet.tag ^= 1u << (9 + draw_.under(4)); break;
            case Conduct::Shorter: packet.bytes = packet.bytes > 64 ? packet.bytes - 64 : 1; break;
            case Conduct::Longer: packet.bytes += 64; break;
            case Conduct::NoBytes: packet.bytes = 0; break;
            case Conduct::Drops: packet.drops = true; break;
            case Conduct::Late: packet.tag = tag_before_; break;
            default: break;
        }
        tag_before_ = true_tag;
        packets_.push_back(std::move(packet));
    }

    Draw& draw_;
    const unsigned number_;
    std::array<Nt, 8> nts_;
    std::deque<Packet> packets_;
    Babble babble_;
    bool is_inside_ = false, is_offered_ = false;
    uint64_t last_exit_ = 0;
    uint32_t tag_before_ = 0;
};

// The wires: packets that go in at their times, and packets that came out.
class Wires {
public:
    struct Packet {
        uint64_t cycle = 0;
        bool has_uid = false;
        uint32_t uid = 0;
        std::vector<uint8_t> bytes;
    };

    bool out_stutters = false;

    void send(Packet packet) { sending_.push_back(std::move(packet)); }
    size_t to_send() const { return sending_.size(); }
    // Cycles of the first beats of those that went in since, in their order.
    std::vector<uint64_t> take_arrived() { return std::move(arrived_); }
    std::vector<Packet> take_received() { return std::move(received_); }

    template <typename Draw>
    void drive(Vsnic_core& top, uint64_t now, Draw& draw) {
        top.out_tready = !out_stutters || draw.one_in(3);
        top.in_tvalid = !sending_.empty() && (sent_ > 0 || sending_.front().cycle <= now);
        if (!top.in_tvalid) return;
        const Packet& packet = sending_.front();
        const size_t left = packet.bytes.size() - sent_, here = std::min<size_t>(left, PORT_BYTES);
        std::memcpy(&top.in_tdata[0], packet.bytes.data() + sent_, here);
        top.in_tkeep = here == PORT_BYTES ? ~0ull : (1ull << here) - 1;
        top.in_tlast = here == left;
        top.in_tuser = static_cast<uint64_t>(packet.has_uid) << 32 | packet.uid;
    }

    void edge(const Vsnic_core& top, uint64_t now) {
        if (top.in_tvalid && top.in_tready) {
            if (sent_ == 0) arrived_.push_back(now);
            sent_ += PORT_BYTES;
            if (top.in_tlast) sending_.pop_front(), sent_ = 0;
        }
        if (!top.out_tvalid || !top.out_tready) return;
        if (!is_inside_) out_ = {now, false, 0, {}};
        is_inside_ = !top.out_tlast;
        const auto* data = reinterpret_cast<const uint8_t*>(&top.out_tdata[0]);
        for (unsigned i = 0; i < PORT_BYTES; i++)
            if (top.out_tkeep >> i & 1) out_.bytes.push_back(data[i]);
        if (top.out_tlast) received_.push_back(out_);
    }

    void reset() {
        sending_.clear();
        sent_ = 0;
        is_inside_ = false;
    }

private:
    std::deque<Packet> sending_;
    size_t sent_ = 0;
    std::vector<uint64_t> arrived_;
    Packet out_;
    bool is_inside_ = false;
    std::vector<Packet> received_;
};

}  // namespace snic
