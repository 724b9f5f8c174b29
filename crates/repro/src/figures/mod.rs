//! The figures, in the order of the page.

mod bluefield2;
mod flexpipe;
mod supernic_11;
mod supernic_12;
mod supernic_14;
mod supernic_15;
mod supernic_16;
mod supernic_18;
mod supernic_5;
mod supernic_7;
mod supernic_8;
mod supernic_9;
mod supernic_table_1;

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
        id: "fig5",
        title: "SuperNIC Fig. 5: two users of the same chains",
        source: "SuperNIC (FPGA '24), Fig. 5 and 4.5",
        run: supernic_5::run,
    },
    Figure {
        id: "fig7",
        title: "SuperNIC Fig. 7: throughput with different credits",
        source: "SuperNIC (FPGA '24), Fig. 7 and 5.1",
        run: supernic_7::run,
    },
    Figure {
        id: "fig8",
        title: "SuperNIC Fig. 8: latency of chains of dummy NTs",
        source: "SuperNIC (FPGA '24), Fig. 8 and 5.3",
        run: supernic_8::run,
    },
    Figure {
        id: "fig9",
        title: "SuperNIC Fig. 9: throughput of DAGs that share NTs",
        source: "SuperNIC (FPGA '24), Figs. 4 and 9, 5.3",
        run: supernic_9::run,
    },
    Figure {
        id: "fig11",
        title: "SuperNIC Fig. 11: latency of a DAG, one after the other and side by side",
        source: "SuperNIC (FPGA '24), Fig. 11 and 5.3",
        run: supernic_11::run,
    },
    Figure {
        id: "fig12",
        title: "SuperNIC Fig. 12: latency of real DAGs",
        source: "SuperNIC (FPGA '24), Figs. 10 and 12, 5.3",
        run: supernic_12::latency,
    },
    Figure {
        id: "fig13",
        title: "SuperNIC Fig. 13: throughput of real DAGs",
        source: "SuperNIC (FPGA '24), Figs. 10 and 13, 5.3",
        run: supernic_12::throughput,
    },
    Figure {
        id: "fig14",
        title: "SuperNIC Fig. 14: DAGs that share another's chain",
        source: "SuperNIC (FPGA '24), Fig. 14 and 5.3",
        run: supernic_14::run,
    },
    Figure {
        id: "fig15",
        title: "SuperNIC Fig. 15: a load that changes, and the regions that serve it",
        source: "SuperNIC (FPGA '24), Fig. 15 and 5.3",
        run: supernic_15::run,
    },
    Figure {
        id: "fig16",
        title: "SuperNIC Fig. 16: dominant shares of two users",
        source: "SuperNIC (FPGA '24), Fig. 16 and 5.3",
        run: supernic_16::shares,
    },
    Figure {
        id: "fig17",
        title: "SuperNIC Fig. 17: aggregated throughput of two users",
        source: "SuperNIC (FPGA '24), Fig. 17 and 5.3",
        run: supernic_16::throughput,
    },
    Figure {
        id: "fig18",
        title: "SuperNIC Fig. 18: region size and utilisation",
        source: "SuperNIC (FPGA '24), Figs. 6 and 18, 5.3",
        run: supernic_18::run,
    },
    Figure {
        id: "table1",
        title: "SuperNIC Table 1: what it has",
        source: "SuperNIC (FPGA '24), Table 1",
        run: supernic_table_1::run,
    },
    Figure {
        id: "flexpipe-fig3",
        title: "FlexPipe Fig. 3: throughput of three designs",
        source: "FlexPipe (preprint of October 2023), Fig. 3 and IV",
        run: flexpipe::figure_3,
    },
    Figure {
        id: "flexpipe-fig4",
        title: "FlexPipe Fig. 4: latency at 90 Gbit/s",
        source: "FlexPipe (preprint of October 2023), Fig. 4 and IV",
        run: flexpipe::figure_4,
    },
    Figure {
        id: "flexpipe-fig5",
        title: "FlexPipe Fig. 5: packets that go round again",
        source: "FlexPipe (preprint of October 2023), Fig. 5 and IV",
        run: flexpipe::figure_5,
    },
    Figure {
        id: "flexpipe-table2",
        title: "FlexPipe Table II: units for line rate",
        source: "FlexPipe (preprint of October 2023), Eq. 1 and Table II",
        run: flexpipe::table_2,
    },
    Figure {
        id: "bluefield2-mixes",
        title: "BlueField-2 study: four packet mixes on the simulated card",
        source: "Benchmarking of NVIDIA BlueField-2 Offloading Capabilities, 4 and 5, Figs. 3 to 6",
        run: bluefield2::run,
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
