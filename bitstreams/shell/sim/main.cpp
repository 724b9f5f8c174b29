// The shell as a process: its ports, driven by frames that come on standard input and are answered on standard output.
//
//   R address words              -> status, words done, the words     reads by AXI4-Lite, one after the other
//   W address words word...      -> status, words done                the same for writes
//   P address strobes word       -> response                          one write with these byte strobes
//   X address word address       -> response, response, word          a write and a read offered in the same cycle
//   M address bytes byte...      -> 0                                 writes the card's memory
//   m address bytes              -> the bytes                         reads it
//   S cycles                     -> cycles in all, longest access     lets time pass
//   Z cycles                     -> 0                                 holds reset
//   F kind number                -> 0                                 something goes wrong: Fault of configuration_port.hpp
//   I count (cycle uid-there uid bytes byte...)... -> 0        packets for the port, from these cycles on, one behind the other
//   A                            -> packets to come, count, cycle...          when those that went in did
//   U                            -> count, (cycle bytes byte...)...    packets that came out, and when their first beats did
//   H region conduct             -> 0                                 what a region does: Conduct of region_chains.hpp; of region
//                                                                     255 whether the port out is ready now and then only
//   O                            -> coupled, in reset, streams, aborts    regions, a bit for each; what ICAPE3 has met
//
// Numbers are little endian, of 32 bits; addresses of memory and counts of cycles of 64; status and responses of 8. A status
// is 0 where all was done, else the response of AXI4-Lite that ended it. Only ports of the top module are touched.
//
// Memory answers in order, after some cycles that differ from beat to beat, and does not always take what is offered; with a
// seed of which a third is a whole number it takes a beat to write in some thirty cycles. What is written is there once the
// memory has answered and the answer was taken, and not before.
// What breaks a rule of AXI4, an access that takes longer than 256 cycles, and a region that is coupled without a ROM that was
// loaded whole end the process with 3.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "Vsnic_core.h"
#include "configuration_port.hpp"
#include "region_chains.hpp"
#include "verilated.h"

namespace {

constexpr uint64_t MEMORY_BYTES = 64ull << 20;
constexpr unsigned BEAT_BYTES = 64;
constexpr unsigned ACCESS_CYCLES_MAX = 256;
constexpr unsigned REGIONS = 16;
constexpr uint32_t IDCODE = 0x14b31093;

using snic::Fault;
using snic::Faults;

[[noreturn]] void fail(const char* what) {
    std::fprintf(stderr, "snic-rtl: %s\n", what);
    std::_Exit(3);
}

// Numbers that differ from run to run only with the seed (Marsaglia, "Xorshift RNGs", 2003).
class Draw {
public:
    explicit Draw(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15ull + 1) {}
    bool one_in(unsigned n) { return next() % n == 0; }
    unsigned under(unsigned n) { return static_cast<unsigned>(next() % n); }
    uint32_t bits() { return static_cast<uint32_t>(next()); }

private:
    uint64_t next() {
        state_ ^= state_ << 13;
        state_ ^= state_ >> 7;
        state_ ^= state_ << 17;
        return state_ >> 16;
    }
    uint64_t state_;
};

using Beat = std::vector<uint8_t>;

// On-board memory behind AXI4, with single beats.
class Memory {
public:
    Memory(Draw& draw, const Faults& faults, bool is_slow)
        : bytes_(static_cast<uint8_t*>(std::calloc(MEMORY_BYTES, 1)), std::free),
          draw_(draw),
          faults_(faults),
          is_slow_(is_slow) {
        if (!bytes_) fail("no memory");
    }

    uint8_t* at(uint64_t address, uint64_t length) {
        if (address > MEMORY_BYTES || length > MEMORY_BYTES - address) return nullptr;
        return bytes_.get() + address;
    }

    // Before the clock's edge: what the memory offers and takes.
    void drive(Vsnic_core& top, uint64_t now) {
        top.memory_arready = !draw_.one_in(4);
        top.memory_awready = is_slow_ ? draw_.one_in(30) : !draw_.one_in(4);
        top.memory_wready = is_slow_ ? draw_.one_in(8) : !draw_.one_in(4);
        top.memory_rvalid = faults_.kind != Fault::MemorySilent && !reads_.empty() && reads_.front().due <= now;
        top.memory_rlast = top.memory_rvalid;
        if (top.memory_rvalid) {
            Beat beat(BEAT_BYTES);
            if (const uint8_t* from = at(reads_.front().address, BEAT_BYTES))
                std::memcpy(beat.data(), from, BEAT_BYTES);
            std::memcpy(&top.memory_rdata[0], beat.data(), BEAT_BYTES);
        }
        top.memory_bvalid = !writes_.empty() && writes_.front().due <= now;
    }

    // At the edge: what was exchanged.
    void edge(const Vsnic_core& top, uint64_t now) {
        keeps("AR", ar_, top.memory_arvalid, top.memory_arready, top.memory_araddr);
        keeps("AW", aw_, top.memory_awvalid, top.memory_awready, top.memory_awaddr);
        keeps("W", w_, top.memory_wvalid, top.memory_wready, top.memory_wdata[0]);
        if (top.memory_arvalid && top.memory_arready) {
            is_single(top.memory_arlen, top.memory_araddr);
            reads_.push_back({top.memory_araddr, now + 1 + draw_.under(40)});
            if (reads_.size() > 16) fail("more than 16 reads under way");
        }
        if (top.memory_rvalid && top.memory_rready) reads_.pop_front();
        if (top.memory_awvalid && top.memory_awready) {
            is_single(top.memory_awlen, top.memory_awaddr);
            addresses_.push_back(top.memory_awaddr);
        }
        if (top.memory_wvalid && top.memory_wready) {
            if (!top.memory_wlast) fail("a write of more than a beat");
            Beat beat(BEAT_BYTES);
            std::memcpy(beat.data(), &top.memory_wdata[0], BEAT_BYTES);
            data_.push_back({beat, top.memory_wstrb});
        }
        if (top.memory_bvalid && top.memory_bready) finish_write();
        while (!addresses_.empty() && !data_.empty()) begin_write(now);
    }

    void reset() {
        reads_.clear();
        addresses_.clear();
        data_.clear();
        writes_.clear();
        ar_ = aw_ = w_ = {};
    }

private:
    struct Read {
        uint64_t address;
        uint64_t due;
    };
    struct Data {
        Beat beat;
        uint64_t strobes;
    };
    struct Write {
        uint64_t address;
        Data data;
        uint64_t due;
    };
    // An offer that was not taken in the cycle before.
    struct Offer {
        bool waits = false;
        uint64_t what = 0;
    };

    static void is_single(unsigned length, uint64_t address) {
        if (length != 0 || address % BEAT_BYTES != 0) fail("a burst that is not one whole beat");
    }

    static void keeps(const char* channel, Offer& offer, bool valid, bool ready, uint64_t what) {
        if (offer.waits && (!valid || what != offer.what)) fail(channel);
        offer = {valid && !ready, what};
    }

    void begin_write(uint64_t now) {
        writes_.push_back({addresses_.front(), data_.front(), now + 1 + draw_.under(20)});
        addresses_.pop_front();
        data_.pop_front();
    }

    void finish_write() {
        const Write& write = writes_.front();
        if (uint8_t* to = at(write.address, BEAT_BYTES))
            for (unsigned i = 0; i < BEAT_BYTES; i++)
                if (write.data.strobes >> i & 1) to[i] = write.data.beat[i];
        writes_.pop_front();
    }

    // Zeros, which cost nothing until they are touched.
    std::unique_ptr<uint8_t, void (*)(void*)> bytes_;
    Draw& draw_;
    const Faults& faults_;
    const bool is_slow_;
    std::deque<Read> reads_;
    std::deque<uint64_t> addresses_;
    std::deque<Data> data_;
    std::deque<Write> writes_;
    Offer ar_, aw_, w_;
};

class Shell {
public:
    Shell(VerilatedContext& context, uint64_t seed)
        : draw_(seed),
          memory_(draw_, faults_, seed % 3 == 0),
          regions_(draw_, REGIONS, faults_),
          port_(regions_, faults_, IDCODE),
          port_phase_(seed / 2 % 2),
          top_(std::make_unique<Vsnic_core>(&context)) {
        for (unsigned i = 0; i < REGIONS; i++) chains_.emplace_back(draw_, i);
        reset(8);
    }
    ~Shell() { top_->final(); }

    Memory& memory() { return memory_; }
    Faults& faults() { return faults_; }
    snic::Wires& wires() { return wires_; }
    snic::Chain<Draw>& chain(unsigned number) { return chains_[number]; }
    const snic::ConfigurationPort<Draw>& port() const { return port_; }
    uint32_t coupled() const { return top_->regions_coupled; }
    uint32_t in_reset() const { return top_->regions_reset; }
    uint64_t cycles() const { return now_; }
    unsigned longest() const { return longest_; }

    void tick() {
        memory_.drive(*top_, now_);
        drive_regions();
        wires_.drive(*top_, now_, draw_);
        top_->clock = 0;
        top_->eval();
        if (!top_->reset) memory_.edge(*top_, now_);
        if (!top_->reset) wires_.edge(*top_, now_);
        edge_of_regions();
        // What the host sees at the edge.
        took_aw_ = top_->control_awvalid && top_->control_awready;
        took_w_ = top_->control_wvalid && top_->control_wready;
        took_ar_ = top_->control_arvalid && top_->control_arready;
        took_b_ = top_->control_bvalid && top_->control_bready;
        took_r_ = top_->control_rvalid && top_->control_rready;
        bresp_ = top_->control_bresp;
        rresp_ = top_->control_rresp;
        rdata_ = top_->control_rdata;
        top_->clock = 1;
        top_->eval();
        now_++;
    }

    void step(uint64_t cycles) {
        while (cycles-- > 0) tick();
    }

    void reset(uint64_t cycles) {
        top_->reset = 1;
        step(cycles);
        memory_.reset();
        wires_.reset();
        top_->reset = 0;
    }

    struct Asked {
        bool writes = false;
        uint32_t write_address = 0, word = 0;
        unsigned strobes = 0xf;
        bool reads = false;
        uint32_t read_address = 0;
    };
    struct Answered {
        unsigned bresp = 0, rresp = 0;
        uint32_t word = 0;
    };

    // One write, one read, or both at once. Address and data of a write may come in different cycles.
    Answered access(const Asked& asked, bool at_once = false) {
        Answered answered;
        unsigned late = at_once ? 0 : draw_.under(4);
        const bool late_data = draw_.one_in(2);
        bool aw = asked.writes, w = asked.writes, b = asked.writes, ar = asked.reads, r = asked.reads;
        unsigned taken = 0;
        while (b || r) {
            top_->control_awvalid = aw && (late == 0 || late_data);
            top_->control_awaddr = asked.write_address;
            top_->control_wvalid = w && (late == 0 || !late_data);
            top_->control_wdata = asked.word;
            top_->control_wstrb = asked.strobes;
            top_->control_arvalid = ar;
            top_->control_araddr = asked.read_address;
            top_->control_bready = !draw_.one_in(4);
            top_->control_rready = !draw_.one_in(4);
            tick();
            late -= late > 0;
            aw = aw && !took_aw_;
            w = w && !took_w_;
            ar = ar && !took_ar_;
            if (took_b_) {
                if (!b || aw || w) fail("an answer to no write");
                b = false;
                answered.bresp = bresp_;
            }
            if (took_r_) {
                if (!r || ar) fail("an answer to no read");
                r = false;
                answered.rresp = rresp_;
                answered.word = rdata_;
            }
            if (++taken > ACCESS_CYCLES_MAX) fail("an access takes too long");
        }
        longest_ = taken > longest_ ? taken : longest_;
        top_->control_awvalid = top_->control_wvalid = top_->control_arvalid = 0;
        return answered;
    }

private:
    void drive_regions() {
        const auto& pins = port_.pins();
        top_->icap_avail = pins.avail;
        top_->icap_prdone = pins.prdone;
        top_->icap_prerror = pins.prerror;
        top_->icap_o = pins.o;
        for (unsigned i = 0; i < REGIONS; i++) top_->regions_rom_data[i] = rom_words_[i];
        for (auto& chain : chains_) chain.drive(*top_, now_);
    }

    void edge_of_regions() {
        for (unsigned i = 0; i < REGIONS; i++) {
            rom_words_[i] = regions_.word(i, top_->regions_rom_address);
            const bool is_coupled = now_ > 0 && (top_->regions_coupled >> i & 1);
            if (is_coupled && !regions_.may_be_coupled(i)) fail("a region without a valid ROM is coupled");
            const bool moves = ((top_->regions_to_tvalid | top_->regions_from_tready) >> i & 1) != 0;
            if (now_ > 0 && !top_->reset && moves && !is_coupled) fail("packets of a region that is not coupled");
            const bool in_reset = top_->reset || (top_->regions_reset >> i & 1);
            chains_[i].edge(*top_, now_, in_reset);
            if (in_reset) chains_[i].fill(regions_.slots(i));
        }
        // The clock of the port is half of this one, in either phase.
        if (now_ % 2 == port_phase_)
            port_.edge(top_->icap_csib, top_->icap_rdwrb, top_->icap_i, top_->regions_reset);
    }

    Faults faults_;
    Draw draw_;
    Memory memory_;
    snic::Regions<Draw> regions_;
    snic::ConfigurationPort<Draw> port_;
    std::deque<snic::Chain<Draw>> chains_;
    snic::Wires wires_;
    const unsigned port_phase_;
    uint32_t rom_words_[REGIONS] = {};
    std::unique_ptr<Vsnic_core> top_;
    uint64_t now_ = 0;
    unsigned longest_ = 0;
    bool took_aw_ = false, took_w_ = false, took_ar_ = false, took_b_ = false, took_r_ = false;
    unsigned bresp_ = 0, rresp_ = 0;
    uint32_t rdata_ = 0;
};

bool take(void* to, size_t bytes) { return std::fread(to, 1, bytes, stdin) == bytes; }

template <typename T>
T number() {
    T value;
    if (!take(&value, sizeof value)) fail("a frame that is cut");
    return value;
}

template <typename T>
void give(T value) {
    std::fwrite(&value, sizeof value, 1, stdout);
}

void read_words(Shell& shell) {
    const uint32_t address = number<uint32_t>(), count = number<uint32_t>();
    std::vector<uint32_t> words;
    uint8_t status = 0;
    for (uint32_t i = 0; i < count && status == 0; i++) {
        Shell::Asked asked;
        asked.reads = true;
        asked.read_address = address + 4 * i;
        const auto answered = shell.access(asked);
        status = static_cast<uint8_t>(answered.rresp);
        if (status == 0) words.push_back(answered.word);
    }
    give(status);
    give(static_cast<uint32_t>(words.size()));
    std::fwrite(words.data(), 4, words.size(), stdout);
}

void write_words(Shell& shell) {
    const uint32_t address = number<uint32_t>(), count = number<uint32_t>();
    uint8_t status = 0;
    uint32_t done = 0;
    for (uint32_t i = 0; i < count; i++) {
        Shell::Asked asked;
        asked.writes = true;
        asked.write_address = address + 4 * i;
        asked.word = number<uint32_t>();
        if (status == 0) status = static_cast<uint8_t>(shell.access(asked).bresp);
        done += status == 0;
    }
    give(status);
    give(done);
}

void write_bytes(Shell& shell) {
    Shell::Asked asked;
    asked.writes = true;
    asked.write_address = number<uint32_t>();
    asked.strobes = number<uint32_t>() & 0xf;
    asked.word = number<uint32_t>();
    give(static_cast<uint8_t>(shell.access(asked).bresp));
}

void write_and_read(Shell& shell) {
    Shell::Asked asked;
    asked.writes = asked.reads = true;
    asked.write_address = number<uint32_t>();
    asked.word = number<uint32_t>();
    asked.read_address = number<uint32_t>();
    const auto answered = shell.access(asked, true);
    give(static_cast<uint8_t>(answered.bresp));
    give(static_cast<uint8_t>(answered.rresp));
    give(answered.word);
}

void move_memory(Shell& shell, bool into) {
    const auto address = number<uint64_t>();
    const auto length = number<uint32_t>();
    uint8_t* bytes = shell.memory().at(address, length);
    if (!bytes) fail("bytes outside of the memory");
    if (into) {
        if (!take(bytes, length)) fail("a frame that is cut");
        give(uint8_t{0});
    } else {
        std::fwrite(bytes, 1, length, stdout);
    }
}

void send_packets(Shell& shell) {
    for (uint32_t left = number<uint32_t>(); left > 0; left--) {
        snic::Wires::Packet packet;
        packet.cycle = number<uint64_t>();
        packet.has_uid = number<uint32_t>() != 0;
        packet.uid = number<uint32_t>();
        packet.bytes.resize(number<uint32_t>());
        if (!take(packet.bytes.data(), packet.bytes.size())) fail("a frame that is cut");
        shell.wires().send(std::move(packet));
    }
    give(uint8_t{0});
}

void say_arrived(Shell& shell) {
    const auto cycles = shell.wires().take_arrived();
    give(static_cast<uint32_t>(shell.wires().to_send()));
    give(static_cast<uint32_t>(cycles.size()));
    for (const uint64_t cycle : cycles) give(cycle);
}

void say_received(Shell& shell) {
    const auto packets = shell.wires().take_received();
    give(static_cast<uint32_t>(packets.size()));
    for (const auto& packet : packets) {
        give(packet.cycle);
        give(static_cast<uint32_t>(packet.bytes.size()));
        std::fwrite(packet.bytes.data(), 1, packet.bytes.size(), stdout);
    }
}

void set_conduct(Shell& shell) {
    const auto region = number<uint32_t>(), conduct = number<uint32_t>();
    if (conduct >= snic::CONDUCTS || (region >= REGIONS && region != 255)) fail("no such conduct");
    if (region == 255) shell.wires().out_stutters = conduct != 0;
    else shell.chain(region).conduct = static_cast<snic::Conduct>(conduct);
    give(uint8_t{0});
}

void serve(Shell& shell) {
    for (char what; take(&what, 1); std::fflush(stdout)) {
        switch (what) {
            case 'R': read_words(shell); break;
            case 'W': write_words(shell); break;
            case 'P': write_bytes(shell); break;
            case 'X': write_and_read(shell); break;
            case 'M': move_memory(shell, true); break;
            case 'm': move_memory(shell, false); break;
            case 'S':
                shell.step(number<uint64_t>());
                give(shell.cycles());
                give(static_cast<uint32_t>(shell.longest()));
                break;
            case 'Z':
                shell.reset(number<uint64_t>());
                give(uint8_t{0});
                break;
            case 'F':
                shell.faults().kind = static_cast<Fault>(number<uint32_t>());
                shell.faults().number = number<uint32_t>();
                give(uint8_t{0});
                break;
            case 'I': send_packets(shell); break;
            case 'A': say_arrived(shell); break;
            case 'U': say_received(shell); break;
            case 'H': set_conduct(shell); break;
            case 'O':
                give(shell.coupled());
                give(shell.in_reset());
                give(shell.port().streams());
                give(shell.port().aborts());
                break;
            default: fail("a frame of no kind");
        }
    }
}

}  // namespace

int main(int argc, char** argv) {
    VerilatedContext context;
    context.commandArgs(argc, argv);
    const uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
    Shell shell(context, seed);
    serve(shell);
    return 0;
}
