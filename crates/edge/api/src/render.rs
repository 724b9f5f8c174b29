//! The regions of a card as plain text: the chain in each region, its users, and the network tasks that
//! each DAG skips.
//!
//! It is in this crate because several programs print it and none may depend on another. It needs only the
//! messages, uses no colours, and fits a terminal of [`WIDTH`] by [`HEIGHT`] for cards with up to 16
//! told.
//!
//! Every DAG gets a letter. Each network task of a region shows the letters of all DAGs in the region:
//! upper case if the DAG uses the task, lower case if it skips it.

use std::collections::BTreeSet;

use crate::v1::card::Health;
use crate::v1::region::State;
use crate::v1::{Card, Region, RegionSlot};

/// Longest line, in characters.
pub const WIDTH: usize = 80;
/// The height of a terminal, in lines. The map leaves one for the prompt.
pub const HEIGHT: usize = 24;
/// Letters for DAGs; further DAGs share [`OTHER`].
const LETTERS: usize = 26;
/// Letter of all DAGs without their own.
const OTHER: char = '+';
/// Longest bitstream name shown in full, in characters.
const BITSTREAM_CHARS_MAX: usize = 18;
/// And where the terminal is narrow.
const BITSTREAM_CHARS_MIN: usize = 4;
/// Characters of a row that are not the bitstream's name, with 20 for network tasks.
const OTHERS_CHARS: usize = 43;
/// Least lines of the legend, however many regions there are: an empty one, the heading, and one of names.
const LEGEND_LINES_MIN: usize = 3;

/// The map of `card`'s `regions`; every line ends with a line break.
pub fn region_map(card: &Card, regions: &[Region]) -> String {
    region_map_within(card, regions, (WIDTH, HEIGHT - 1))
}

/// The same in lines of at most `width` characters, and in at most `height` lines, if there are enough for one line per
/// region and five more.
pub fn region_map_within(
    card: &Card,
    regions: &[Region],
    (width, height): (usize, usize),
) -> String {
    let map = Map::new(regions, width);
    let mut lines = vec![title(card, regions, width), map.heading()];
    let limit = height.max(lines.len() + regions.len() + LEGEND_LINES_MIN);
    let left = limit - lines.len();
    let legend = map.legend(usize::MAX).len().min(left - regions.len());
    lines.extend(map.rows(left - legend));
    lines.extend(map.legend(limit - lines.len()));
    lines.into_iter().map(|line| line + "\n").collect()
}

/// A state in at most eight characters.
pub fn state_word(state: State) -> &'static str {
    match state {
        State::Free => "FREE",
        State::Reconfiguring => "LOADING",
        State::Active => "ACTIVE",
        State::Draining => "DRAINING",
        State::Victim => "VICTIM",
        State::Faulty => "FAULTY",
        State::Unknown | State::Unspecified => "UNKNOWN",
    }
}

/// Load of a region's fullest network task, in percent, rounded up. `None` if nothing is loaded.
pub fn load_percent(region: &Region) -> Option<u64> {
    let percent = |slot: &RegionSlot| {
        let share = u128::from(slot.reserved_bps) * 100;
        u64::try_from(share.div_ceil(u128::from(slot.bandwidth_max_bps.max(1)))).unwrap_or(u64::MAX)
    };
    region.slots.iter().map(percent).max()
}

/// The text, cut to `chars` characters with an ellipsis if it is longer.
pub fn cut(text: &str, chars: usize) -> String {
    if text.chars().count() <= chars {
        return text.to_owned();
    }
    let kept = text.chars().take(chars.saturating_sub(1));
    kept.chain((chars > 0).then_some('…')).collect()
}

fn title(card: &Card, regions: &[Region], width: usize) -> String {
    let states = [
        State::Active,
        State::Reconfiguring,
        State::Draining,
        State::Victim,
        State::Free,
        State::Faulty,
        State::Unknown,
    ];
    let counts = states.iter().filter_map(|state| {
        let count = regions.iter().filter(|region| region.state() == *state).count();
        (count > 0).then(|| format!("{count} {}", state_word(*state).to_lowercase()))
    });
    let mut counts: Vec<String> = counts.collect();
    let cordoned = regions.iter().filter(|region| region.cordoned).count();
    if cordoned > 0 {
        counts.push(format!("{cordoned} cordoned"));
    }
    let health = match card.health() {
        Health::Ok => "OK",
        Health::Impaired => "IMPAIRED",
        Health::Lost => "LOST",
        Health::Recovering => "RECOVERING",
        Health::Unspecified => "UNKNOWN",
    };
    let counts = if counts.is_empty() { "no regions".to_owned() } else { counts.join(", ") };
    cut(&format!("{} ({}) {health}: {counts}", last_part(&card.name), card.model), width)
}

/// Layout shared by all rows.
struct Map<'a> {
    regions: &'a [Region],
    dags: Vec<&'a str>,
    bitstream_chars: usize,
    width: usize,
}

impl<'a> Map<'a> {
    fn new(regions: &'a [Region], width: usize) -> Self {
        let users = regions.iter().flat_map(|region| &region.users);
        let dags: BTreeSet<&str> = users.map(|user| user.dag.as_str()).collect();
        let names = regions.iter().map(|region| last_part(&region.bitstream).chars().count());
        let most =
            width.saturating_sub(OTHERS_CHARS).clamp(BITSTREAM_CHARS_MIN, BITSTREAM_CHARS_MAX);
        let bitstream_chars = names.max().unwrap_or(0).clamp(most.min(9), most);
        Self { regions, dags: dags.into_iter().collect(), bitstream_chars, width }
    }

    fn line(&self, [number, state, load, bitstream, tasks]: [&str; 5]) -> String {
        let width = self.bitstream_chars;
        let bitstream = cut(bitstream, width);
        let line = format!("{number:<6}{state:<9}{load:>4}  {bitstream:<width$}  {tasks}");
        cut(line.trim_end(), self.width)
    }

    fn heading(&self) -> String {
        self.line(["#", "STATE", "LOAD", "BITSTREAM", "NETWORK TASKS : DAGS"])
    }

    /// Width of the last column.
    fn tasks_chars(&self) -> usize {
        (self.width + 1).saturating_sub(self.line(["", "", "", "", "|"]).chars().count()).max(1)
    }

    /// All regions, in at most `limit` lines if one line per region fits. If lines are scarce, consecutive
    /// free regions share one, and then long chains are shortened.
    fn rows(&self, limit: usize) -> Vec<String> {
        let single: Vec<&[Region]> = self.regions.chunks(1).collect();
        let grouped: Vec<&[Region]> =
            self.regions.chunk_by(|left, right| is_empty(left) && is_empty(right)).collect();
        let rows = |groups: &[&[Region]], tasks| -> Vec<String> {
            groups.iter().flat_map(|group| self.row(group, tasks)).collect()
        };
        let layouts = [rows(&single, Self::wrapped), rows(&grouped, Self::wrapped)];
        let fitting = layouts.into_iter().find(|lines| lines.len() <= limit);
        fitting.unwrap_or_else(|| rows(&grouped, Self::shortened))
    }

    /// The lines of a region, or of consecutive free ones.
    fn row(&self, group: &[Region], tasks: fn(&Self, &Region) -> Vec<String>) -> Vec<String> {
        let [region, rest @ ..] = group else { return Vec::new() };
        let mark = if region.cordoned { "!" } else { "" };
        let to = rest.last().map_or(String::new(), |last| format!("-{}", last_part(&last.name)));
        let number = format!("{}{to}{mark}", last_part(&region.name));
        let load = load_percent(region).map_or(String::new(), |load| format!("{load}%"));
        let state = state_word(region.state());
        let tasks = tasks(self, region);
        let first = tasks.first().map_or("", String::as_str);
        let bitstream = last_part(&region.bitstream);
        let mut lines = vec![self.line([&number, state, &load, bitstream, first])];
        lines.extend(tasks.iter().skip(1).map(|more| self.line(["", "", "", "", more])));
        lines
    }

    fn wrapped(&self, region: &Region) -> Vec<String> {
        let width = self.tasks_chars();
        let mut lines: Vec<String> = Vec::new();
        for task in self.tasks(region) {
            let task = task.text(width);
            match lines.last_mut() {
                Some(line) if line.chars().count() + 1 + task.chars().count() <= width => {
                    line.push(' ');
                    line.push_str(&task);
                }
                _ => lines.push(task),
            }
        }
        lines
    }

    /// One line: task names are cut as needed, the longest first.
    fn shortened(&self, region: &Region) -> Vec<String> {
        let width = self.tasks_chars();
        let tasks = self.tasks(region);
        let line =
            |name: usize| tasks.iter().map(|task| task.text(name)).collect::<Vec<_>>().join(" ");
        let fitting = (1..=width).rev().map(line).find(|line| line.chars().count() <= width);
        vec![fitting.unwrap_or_else(|| cut(&line(1), width))]
    }

    /// The last column: the tasks with their DAGs, or the last error if nothing is loaded.
    fn tasks<'r>(&self, region: &'r Region) -> Vec<Task<'r>> {
        if region.slots.is_empty() && !region.last_error.is_empty() {
            return vec![Task { name: &region.last_error, letters: String::new() }];
        }
        let slots = region.slots.iter().enumerate();
        slots
            .map(|(index, slot)| Task {
                name: last_part(&slot.nt_type),
                letters: self.letters(region, index),
            })
            .collect()
    }

    /// A letter for every DAG in the region: upper case if it uses the slot.
    fn letters(&self, region: &Region, slot: usize) -> String {
        let takes = |dag: &str| {
            let mut users = region.users.iter().filter(|user| user.dag == dag);
            users.any(|user| user.slots.iter().any(|taken| *taken as usize == slot))
        };
        let here: BTreeSet<&str> = region.users.iter().map(|user| user.dag.as_str()).collect();
        let mut letters = String::new();
        for dag in here {
            match self.letter(dag) {
                Some(letter) if takes(dag) => letters.push(letter),
                Some(letter) => letters.push(letter.to_ascii_lowercase()),
                None if letters.ends_with(OTHER) => {}
                None => letters.push(OTHER),
            }
        }
        letters
    }

    fn letter(&self, dag: &str) -> Option<char> {
        let index = self.dags.binary_search(&dag).ok().filter(|index| *index < LETTERS)?;
        u8::try_from(index).ok().map(|index| char::from(b'A' + index))
    }

    /// The legend of letters, in at most `limit` lines; empty if no DAG is mapped.
    fn legend(&self, limit: usize) -> Vec<String> {
        if self.dags.is_empty() {
            return Vec::new();
        }
        let key = "Capital: takes the task. Small: skips it. LOAD: the fullest task. !: cordoned.";
        let short = "A: takes the task. a: skips it.";
        let key = if key.len() <= self.width { key } else { short };
        let mut lines = vec![String::new(), key.into()];
        let named = self.dags.iter().take(LETTERS).filter_map(|dag| {
            let name = dag.trim_start_matches("tenants/").replacen("/dags/", "/", 1);
            Some(format!("{} {}", self.letter(dag)?, cut(&name, self.width - 2)))
        });
        let named: Vec<String> = named.collect();
        let width = named.iter().map(|entry| entry.chars().count()).max().unwrap_or(0);
        let columns = ((self.width + 3) / (width + 3)).max(1);
        let room = limit.saturating_sub(lines.len()).max(1);
        let all_fit = named.len() <= columns.saturating_mul(room) && named.len() == self.dags.len();
        let shown = named.len().min(columns.saturating_mul(room - usize::from(!all_fit)));
        for entries in named[..shown].chunks(columns) {
            let entries: Vec<String> =
                entries.iter().map(|entry| format!("{entry:<width$}")).collect();
            lines.push(entries.join("   ").trim_end().to_owned());
        }
        if shown < self.dags.len() {
            lines.push(format!("and {} more", self.dags.len() - shown));
        }
        lines
    }
}

/// Whether a region is free and has no error or mark.
fn is_empty(region: &Region) -> bool {
    let has_text = !region.bitstream.is_empty() || !region.last_error.is_empty();
    region.state() == State::Free && !region.cordoned && !has_text && region.slots.is_empty()
}

/// A network task of a region, and the letters of the DAGs there.
struct Task<'a> {
    name: &'a str,
    letters: String,
}

impl Task<'_> {
    /// The task with its name cut to `chars`.
    fn text(&self, chars: usize) -> String {
        let name = cut(self.name, chars);
        if self.letters.is_empty() { name } else { format!("{name}:{}", self.letters) }
    }
}

fn last_part(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::v1::RegionUser;

    fn card() -> Card {
        let (name, model) = ("cards/card0".to_owned(), "sim-16".to_owned());
        Card { name, model, health: Health::Ok.into(), ..Card::default() }
    }

    fn region(number: usize, state: State) -> Region {
        let name = format!("cards/card0/regions/{number}");
        Region { name, state: state.into(), ..Region::default() }
    }

    fn slot(nt: &str, gbps: u64) -> RegionSlot {
        let nt_type = format!("ntTypes/{nt}");
        RegionSlot {
            nt_type,
            bandwidth_max_bps: 100_000_000_000,
            reserved_bps: gbps * 1_000_000_000,
        }
    }

    fn user(dag: &str, slots: &[u32]) -> RegionUser {
        let (tenant, dag) = dag.split_once('/').expect("a tenant");
        let dag = format!("tenants/{tenant}/dags/{dag}");
        RegionUser { dag, slots: slots.to_vec(), bandwidth_bps: 10_000_000_000 }
    }

    /// A card as after a start: the long chain shared by three, one failed, the others free.
    fn sixteen() -> Vec<Region> {
        let mut regions: Vec<Region> = (0..16).map(|number| region(number, State::Free)).collect();
        let chain = ["nat", "firewall", "load-balancer", "kv-cache", "go-back-n", "aes"];
        regions[0] = Region {
            bitstream: "bitstreams/dag-d-sim-16".into(),
            slots: chain.iter().map(|nt| slot(nt, 35)).collect(),
            users: vec![
                user("acme/dag-d", &[0, 1, 2, 3, 4, 5]),
                user("globex/dag-a", &[1, 5]),
                user("acme/dag-b", &[0, 2]),
            ],
            ..region(0, State::Active)
        };
        regions[1] = Region {
            bitstream: "bitstreams/nat-sim-16".into(),
            slots: vec![slot("nat", 0)],
            cordoned: true,
            ..region(1, State::Victim)
        };
        let last_error = "reconfiguration failed 3 times: the card says CRC error".into();
        regions[2] = Region { last_error, ..region(2, State::Faulty) };
        regions
    }

    #[test]
    fn the_map_says_who_shares_what_and_who_skips_what() {
        let map = region_map(&card(), &sixteen());
        let lines: Vec<&str> = map.lines().collect();
        assert_eq!(
            lines[0],
            "card0 (sim-16) OK: 1 active, 1 victim, 13 free, 1 faulty, 1 cordoned"
        );
        assert_eq!(lines[1], "#     STATE    LOAD  BITSTREAM     NETWORK TASKS : DAGS");
        assert_eq!(
            lines[2],
            "0     ACTIVE    35%  dag-d-sim-16  nat:ABc firewall:aBC load-balancer:ABc"
        );
        assert_eq!(lines[3].trim(), "kv-cache:aBc go-back-n:aBc aes:aBC");
        assert_eq!(lines[4], "1!    VICTIM     0%  nat-sim-16    nat");
        let cut =
            "2     FAULTY                       reconfiguration failed 3 times: the card say…";
        assert_eq!(lines[5], cut);
        assert_eq!(lines[6], "3     FREE");
        assert_eq!(lines[lines.len() - 1], "A acme/dag-b     B acme/dag-d     C globex/dag-a");
    }

    #[test]
    fn a_full_card_of_sixteen_regions_fits_a_terminal() {
        let name = |n: usize| format!("network-task-{n}-{}", "x".repeat(45));
        let regions: Vec<Region> = (0..16)
            .map(|number| Region {
                bitstream: format!("bitstreams/{}", name(number)),
                slots: (0..8).map(|n| slot(&name(n), 100)).collect(),
                users: (0..40).map(|n| user(&format!("t/d{:02}", n + number), &[1, 3])).collect(),
                ..region(number, State::Active)
            })
            .collect();
        let map = region_map(&card(), &regions);
        assert!(map.lines().count() < HEIGHT, "{map}");
        assert!(map.lines().all(|line| line.chars().count() <= WIDTH), "{map}");
        assert!(map.lines().last().is_some_and(|line| line.starts_with("and ")), "{map}");
    }

    #[test]
    fn a_chain_too_long_for_its_line_keeps_every_task_and_letter() {
        let mut regions = sixteen();
        for number in 1..16 {
            let name = regions[number].name.clone();
            regions[number] = Region { name, ..regions[0].clone() };
        }
        let map = region_map(&card(), &regions);
        let row = map.lines().nth(2).expect("a row");
        let tasks: Vec<&str> = row.split_whitespace().skip(4).collect();
        let letters: Vec<&str> =
            tasks.iter().filter_map(|task| Some(task.split_once(':')?.1)).collect();
        assert_eq!(letters, ["ABc", "aBC", "ABc", "aBc", "aBc", "aBC"], "{map}");
        assert!(map.lines().count() < HEIGHT, "{map}");
    }

    #[test]
    fn free_regions_share_a_line_before_anything_is_left_out() {
        let mut regions = sixteen();
        for number in [4, 5, 6] {
            let name = regions[number].name.clone();
            regions[number] = Region { name, ..regions[0].clone() };
        }
        regions[9].cordoned = true;
        let map = region_map(&card(), &regions);
        for line in ["3     FREE", "7-8   FREE", "9!    FREE", "10-15 FREE"] {
            assert!(map.lines().any(|found| found == line), "{line}: {map}");
        }
        assert!(map.contains("load-balancer:ABc") && !map.contains("more"), "{map}");
        assert!(map.lines().count() < HEIGHT, "{map}");
    }

    #[test]
    fn a_card_without_regions_or_dags_is_a_map_too() {
        assert_eq!(region_map(&card(), &[]).lines().count(), 2);
        let map = region_map(&card(), &[region(0, State::Free)]);
        assert_eq!(map.lines().last(), Some("0     FREE"), "no legend where there is no DAG");
        assert!(map.starts_with("card0 (sim-16) OK: 1 free\n"), "{map}");
    }

    #[test]
    fn load_is_that_of_the_fullest_task_and_never_rounds_down() {
        let mut full = region(0, State::Active);
        assert_eq!(load_percent(&full), None);
        full.slots = vec![slot("a", 10), slot("b", 99)];
        full.slots[1].reserved_bps += 1;
        assert_eq!(load_percent(&full), Some(100));
        full.slots[0] = RegionSlot { bandwidth_max_bps: 0, ..slot("a", 0) };
        full.slots.truncate(1);
        assert_eq!(load_percent(&full), Some(0));
    }

    #[test]
    fn cutting_counts_characters() {
        assert_eq!(cut("größer", 6), "größer");
        assert_eq!(cut("größer", 4), "grö…");
        assert_eq!((cut("ab", 1), cut("ab", 0)), ("…".into(), String::new()));
    }

    prop_compose! {
        fn any_region()(
            number in 0..32_usize,
            state in 0..8,
            bitstream in "[a-z./-]{0,70}",
            nts in prop::collection::vec("[a-zé-]{0,63}", 0..9),
            users in prop::collection::vec(("[a-c]/[a-z]{1,63}", prop::collection::vec(0..9_u32, 0..9)), 0..12),
            last_error in ".{0,100}",
            cordoned in any::<bool>(),
        ) -> Region {
            Region {
                state,
                bitstream,
                cordoned,
                last_error: last_error.replace(['\n', '\r'], " "),
                slots: nts.iter().map(|nt| slot(nt, 1)).collect(),
                users: users.iter().map(|(dag, slots)| user(dag, slots)).collect(),
                ..region(number, State::Free)
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn no_map_is_wider_than_a_terminal(regions in prop::collection::vec(any_region(), 0..20)) {
            let map = region_map(&card(), &regions);
            prop_assert!(map.lines().all(|line| line.chars().count() <= WIDTH), "{}", map);
            if regions.len() <= 16 {
                prop_assert!(map.lines().count() < HEIGHT, "{}", map);
            }
        }
    }
}
