//! The fast path of the software card: flows whose packets change in headers only pass in the kernel.
//!
//! ```text
//!            tcx ingress of a port
//!  frame ──► key? rule? version? generation? bucket? ──yes──► headers rewritten ──► port of the rule
//!                          │ no, or anything unusual
//!                          ▼
//!                 the port's slow device ──► the card's process: model and NTs, which make the rules
//! ```
//!
//! The program is small and in C (`kernel/flows.c`). It knows no NTs: a rule is a [`snic_card_soft::HeaderRule`], which the card composes of
//! what the NTs of a chain say of a flow. What it does not take as it is, it leaves to the card, and changes nothing in it.
//!
//! **Slow devices.** The card reads its ports by AF_PACKET sockets. In the kernel these see a frame before any program at tc does
//! (`__netif_receive_skb_core` calls packet taps, then `sch_handle_ingress`), so a socket on a port with the program would get each
//! frame that the program sent on as well, and the card would forward it a second time. So with a fast path the card reads each port's frames from another device, to which
//! the program sends what it does not take: a TAP device that the card's process has made. No other process sees these frames, and the host's own network
//! gets none of the port's either.
//!
//! **Without the card's process** nothing passes: link, program and maps are held by its descriptors alone, and so is the TAP device. A
//! frame that meets the program while its slow device is gone is dropped. A tenant's packets never pass without their DAG.
//!
//! **Changes.** A rule holds for one version of the card's tables and one generation of its DAG's row: one word ends all rules
//! ([`FastPath::set_version`]) or those of a DAG ([`FastPath::set_dag`]) from one packet to the next.
//!
//! **Rates.** A DAG has a bucket; packets beyond it take the slow path, where they wait or are dropped as the card would have
//! them. Whoever sets the bucket says how much of a DAG's rate may pass here.
//!
//! Merged TCP segments (GSO, GRO) and checksums that are left to a device stay as they are, and are right. Merged UDP takes the slow path.

mod layout;
mod offload;
mod program;

pub use layout::{DagCounts, DagProfile, Exit, KernelRule, RuleUse};
pub use offload::{KernelOffload, open};
pub use program::{FastPath, FastPathError};
