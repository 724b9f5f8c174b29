//! The figures, in the order of the page.

mod supernic_11;
mod supernic_8;

use anyhow::Result;

use crate::outcome::Outcome;
use crate::parameters::Parameters;

/// One figure or table.
#[derive(Debug)]
pub struct Figure {
    /// What it is called on the command line.
    pub id: &'static str,
    /// For people.
    pub title: &'static str,
    /// Where it is published.
    pub source: &'static str,
    /// Regenerates it.
    pub run: fn(&Parameters) -> Result<Outcome>,
}

/// All figures.
pub const ALL: &[Figure] = &[
    Figure {
        id: "fig8",
        title: "SuperNIC Fig. 8: latency of chains of dummy NTs",
        source: "SuperNIC (FPGA '24), Fig. 8 and 5.3",
        run: supernic_8::run,
    },
    Figure {
        id: "fig11",
        title: "SuperNIC Fig. 11: latency of a DAG, one after the other and side by side",
        source: "SuperNIC (FPGA '24), Fig. 11 and 5.3",
        run: supernic_11::run,
    },
];

/// A figure by its name.
pub fn find(id: &str) -> Option<&'static Figure> {
    ALL.iter().find(|figure| figure.id == id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        for figure in ALL {
            assert_eq!(ALL.iter().filter(|other| other.id == figure.id).count(), 1);
            assert_eq!(find(figure.id).map(|found| found.title), Some(figure.title));
        }
        assert!(find("fig99").is_none());
    }
}
