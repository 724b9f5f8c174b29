//! Fig. 18: how full regions of one and two times the largest NT are.

use anyhow::{Context, Result};
use snic_domain::{Area, NtType};

use crate::outcome::{Axis, Expected, ExpectedBound, FigureOutcome, Origin, Plot, Series};
use crate::parameters::{FIG18_SIZES, Parameters};

pub(super) fn run(parameters: &Parameters) -> Result<FigureOutcome> {
    let nts = &parameters.catalogue.nt_types;
    let areas: Vec<Area> = nts.iter().map(|nt: &NtType| nt.area).collect();
    // A region as large as the largest NT holds every single NT, by each resource.
    let once = Area {
        lut: areas.iter().map(|area| area.lut).max().context("there are NTs")?,
        ramb36: areas.iter().map(|area| area.ramb36).max().context("there are NTs")?,
        dsp: 0,
    };
    let mut outcome = FigureOutcome::default();
    let mut series = Vec::new();
    let sizes = parameters.all(&FIG18_SIZES);
    for (times, name) in sizes.iter().zip(["1×", "2×"]) {
        let scaled = |of: u32| (f64::from(of) * times) as u32;
        let region = Area { lut: scaled(once.lut), ramb36: scaled(once.ramb36), dsp: 0 };
        let mut sorted = areas.clone();
        sorted.sort_by_key(|area| region.fill_permille(*area));
        let smallest = fills(region, sorted.iter().copied());
        let largest = fills(region, sorted.iter().rev().copied());
        series.push(Series::ours(format!("{name}, largest NTs"), largest));
        series.push(Series::ours(format!("{name}, smallest NTs"), smallest));
    }
    let at = |series: &Series, length: usize| {
        series.points.get(length - 1).map_or(f64::NAN, |point| point.1)
    };
    let [one_large, _, two_large, two_small] = &series[..] else {
        anyhow::bail!("fig18.sizes needs two sizes")
    };
    let published =
        |value| Expected::predicted(Origin::Published, ExpectedBound::Margin(value, 1.0));
    outcome.check("2×, the smallest two", "%", published(10.0), at(two_small, 2));
    let full = Expected::derived(Origin::Computed, ExpectedBound::Exact(100.0));
    outcome.check("1×, the largest: the region's measure", "%", full, at(one_large, 1));
    let most = Expected::derived(Origin::Computed, ExpectedBound::Between(50.0, 100.0));
    outcome.check(
        "2×, the largest two: between one NT and the region",
        "%",
        most,
        at(two_large, 2),
    );
    outcome.check("2×, the largest two", "%", published(79.0), at(two_large, 2));
    series.push(Series::paper("2×, largest NTs", vec![(2.0, 79.0)]));
    series.push(Series::paper("2×, smallest NTs", vec![(2.0, 10.0)]));
    outcome.plot =
        Some(Plot { x: "Chain length (NTs)", y: "Region filled (%)", axis: Axis::Linear, series });
    outcome.note(
        "By the planner's own measure: the fullest resource, with the areas of Fig. 6. The paper uses \
         twelve NTs, six of them AmorphOS's, and prints the areas of eight; the largest pair's 79 % \
         cannot be computed from these: with them one NT needs most of the LUTs, the other most of the \
         memory, so that the pair fills little more than one. No pair of the eight fills 78 to 80 % of twice \
         the largest: by LUTs, by memory, by the fuller of both or by their mean; and by LUTs alone \
         no four areas for the others could: 79 % would need a largest NT of 8,300 LUTs or more, of twice \
         which the smallest two are 5.6 % at most, not 10. If the pair is 79 % with go-back-N's LUTs, the largest has 8,448, and firewall and NAT are 7.9 % of twice that. It stays outside.",
    );
    Ok(outcome)
}

/// Used part of a region, in percent, by the length of the chain, as long as the chain fits.
fn fills(region: Area, nts: impl Iterator<Item = Area>) -> Vec<(f64, f64)> {
    let mut used = Area::default();
    let mut points = Vec::new();
    for (length, area) in (1_u32..).zip(nts) {
        used = used + area;
        if !region.fits(used) {
            break;
        }
        points.push((f64::from(length), f64::from(region.fill_permille(used)) / 10.0));
    }
    points
}
