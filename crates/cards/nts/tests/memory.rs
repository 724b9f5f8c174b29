//! Nothing is allocated per packet: once every NT has processed each kind of packet, the allocator
//! refuses all further requests, and the program would abort at the first one.

mod support;

use std::alloc::System;
use std::time::Duration;

use cap::Cap;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use snic_domain::Timestamp;
use snic_nts::{Context, Emitted, NT_TYPES, Pool, create, schema};

use support::{configuration, frames};

#[global_allocator]
static MEMORY: Cap<System> = Cap::new(System, usize::MAX);

/// Number of times that all frames pass each NT without memory.
const ROUNDS: u16 = 300;

#[test]
fn no_packet_takes_memory() {
    // The first time without a limit: by its end the test harness has what it needs as well.
    pass_all(false);
    pass_all(true);
}

fn pass_all(is_limited: bool) {
    let frames = frames();
    let pool = Pool::new(64, 2_048);
    let mut emitted = Emitted::new(pool.clone());
    let mut random = ChaCha8Rng::seed_from_u64(1);
    for nt_type in NT_TYPES {
        let mut now = Timestamp::from_nanos(1);
        let mut nt = create(nt_type, 1).expect("listed");
        let version = schema(nt_type).expect("listed").version;
        let settings = configuration(nt_type).to_string();
        nt.configure(now, version, settings.as_bytes()).expect("the tests' own settings");
        let before = MEMORY.allocated();
        if is_limited {
            MEMORY.set_limit(before).expect("nothing is above what is there");
        }
        for round in 0..ROUNDS {
            for frame in &frames {
                now = now + Duration::from_millis(7);
                let mut packet = pool.copy_of(frame).expect("all buffers came back");
                // New flows all the time, so that tables fill and give up entries.
                if let Some(port) = packet.bytes_mut().get_mut(34..36) {
                    port.copy_from_slice(&(round * 7).to_be_bytes());
                }
                let mut context = Context { now, random: &mut random, emitted: &mut emitted };
                nt.process(&mut packet, &mut context);
                nt.wake(&mut context);
                context.emitted.drain().for_each(drop);
            }
        }
        MEMORY.set_limit(usize::MAX).expect("any limit above");
        if is_limited {
            assert_eq!(MEMORY.allocated(), before, "{nt_type}");
        }
    }
}
