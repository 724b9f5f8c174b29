//! Choice of the fleet's card for a DAG.
//!
//! ```text
//! request ── constraints ──► groups of cards ── policy's order ──► a few cards ── planner::plan ──► choice
//!            (zone, model)   (index)           (k-way merge)      (summary)      (mirrored ledger)
//! ```
//!
//! Cards are grouped by what a request asks first (profile, zone, whether a region can be loaded), and each group is
//! ordered by the bandwidth that its cards have left. A request walks the groups that suit it, merged in the order of its
//! policy, and looks at a summary of each card. What passes is planned on the card's own ledger by the same planner that
//! the hosts use, so that the answer is exact. The first plan is the choice, for the walk is in the policy's order.

mod constraints;
mod defaults;
mod find;
mod function_books;
mod host_images;
mod images;
mod index;
mod inventory;
mod kept;
mod level;
mod place;
mod registered;
mod summary;
mod walk;

pub use constraints::{CardConstraints, CardPolicy, Constraint, PlacementRefused, PlacesOfDags};
pub use defaults::{PlacementDefaults, TenantDefaults};
pub use find::{HostNeeds, RANKED_HOSTS_MAX, RankedHost};
pub use function_books::{KeptName, KeptRoom, KeptUser};
pub use host_images::HostImages;
pub(crate) use index::CardSlot;
pub use inventory::{CannotHold, HostUnknown, Inventory, NoSuchCard};
pub use level::CardLoad;
pub(crate) use level::{LevelRule, Levels, ResourceUse, StayCause};
pub use place::{DagChoice, PlaceDag};
pub use registered::{CardSpec, HostSpec, PromiseLimits};
