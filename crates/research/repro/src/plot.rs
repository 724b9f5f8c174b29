//! Plots as SVG: axes with units, a legend, the paper's points as hollow marks beside ours.

use anyhow::{Context, Result};
use plotters::coord::Shift;
use plotters::prelude::*;

use crate::outcome::{Axis, Plot, Series, SeriesStyle};

const SIZE: (u32, u32) = (960, 480);
/// Sizes of the legend: its first line, from line to line, its marks, and a letter of 13 pixels' height.
const LEGEND_TOP: i32 = 56;
const LEGEND_LINE: i32 = 20;
const LEGEND_MARK: u32 = 40;
const LEGEND_LETTER: u32 = 7;

/// Colours that differ also for the colour-blind (Okabe and Ito's set), and three more for the plots that
/// have many lines.
const COLOURS: [RGBColor; 10] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(60, 60, 60),
    RGBColor(148, 103, 189),
    RGBColor(140, 86, 75),
    RGBColor(23, 150, 160),
];

/// Draws a plot.
///
/// # Errors
/// The drawing library cannot draw a part of it.
pub fn svg(title: &str, plot: &Plot) -> Result<String> {
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        root.fill(&WHITE).context("white")?;
        let longest = plot.series.iter().map(|series| label(series).chars().count()).max();
        let beside = LEGEND_MARK + LEGEND_LETTER * longest.unwrap_or(0) as u32;
        let (chart, names) = root.split_horizontally(SIZE.0 - beside.min(SIZE.0 / 2));
        match &plot.axis {
            Axis::Categories(names) => bars(&chart, title, plot, names)?,
            Axis::Linear | Axis::Doubling => lines(&chart, title, plot)?,
        }
        legend(&names, plot)?;
        root.present().context("the drawing ends")?;
    }
    Ok(text)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// A series' colour: ours and the paper's of one name share it.
fn colour(plot: &Plot, series: &Series) -> RGBColor {
    let mut names: Vec<&str> = Vec::new();
    for other in &plot.series {
        if !names.contains(&other.name.as_str()) {
            names.push(&other.name);
        }
    }
    let at = names.iter().position(|name| *name == series.name).unwrap_or(0);
    COLOURS[at % COLOURS.len()]
}

fn label(series: &Series) -> String {
    match series.style {
        SeriesStyle::Ours => series.name.clone(),
        SeriesStyle::Paper => format!("{} (paper)", series.name),
    }
}

fn y_max(plot: &Plot) -> f64 {
    let points = plot.series.iter().flat_map(|series| &series.points);
    let top = points.map(|&(_, y)| y).fold(0.0, f64::max);
    if top > 0.0 { top * 1.12 } else { 1.0 }
}

fn x_of(plot: &Plot, x: f64) -> f64 {
    if plot.axis == Axis::Doubling { x.max(1.0).log2() } else { x }
}

fn lines(root: &Area<'_>, title: &str, plot: &Plot) -> Result<()> {
    let xs = || plot.series.iter().flat_map(|s| s.points.iter().map(|&(x, _)| x_of(plot, x)));
    let (low, high) = (xs().fold(f64::INFINITY, f64::min), xs().fold(f64::NEG_INFINITY, f64::max));
    let pad = ((high - low) * 0.03).max(0.1);
    let mut chart = ChartBuilder::on(root)
        .caption(title, ("sans-serif", 18))
        .margin(14)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(low - pad..high + pad, 0.0..y_max(plot))
        .context("axes")?;
    let x_text = |x: &f64| {
        let value = if plot.axis == Axis::Doubling { x.exp2() } else { *x };
        if plot.axis == Axis::Doubling && (x - x.round()).abs() > 1e-9 {
            String::new()
        } else {
            crate::outcome::number(value)
        }
    };
    let mut mesh = chart.configure_mesh();
    mesh.x_desc(plot.x).y_desc(plot.y).x_label_formatter(&x_text).label_style(("sans-serif", 13));
    if plot.axis == Axis::Doubling {
        mesh.x_labels((high - low).round() as usize + 1);
    }
    mesh.light_line_style(WHITE).draw().context("mesh")?;
    for (at, series) in plot.series.iter().enumerate() {
        let colour = colour(plot, series);
        let points: Vec<_> = series.points.iter().map(|&(x, y)| (x_of(plot, x), y)).collect();
        if series.style == SeriesStyle::Ours {
            let line = LineSeries::new(points.clone(), colour.stroke_width(width(plot, at)));
            chart.draw_series(line).context("line")?;
            if points.len() < 80 {
                let dots = points.iter().map(|&at| Circle::new(at, 3, colour.filled()));
                chart.draw_series(dots).context("dots")?;
            }
        } else {
            let marks = points.iter().map(|&at| Circle::new(at, 6, colour.stroke_width(2)));
            chart.draw_series(marks).context("marks")?;
        }
    }
    Ok(())
}

fn bars(root: &Area<'_>, title: &str, plot: &Plot, names: &[String]) -> Result<()> {
    let count = names.len() as f64;
    let mut chart = ChartBuilder::on(root)
        .caption(title, ("sans-serif", 18))
        .margin(14)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(-0.5..count - 0.5, 0.0..y_max(plot))
        .context("axes")?;
    let x_text = |x: &f64| {
        let near = x.round();
        let name = names.get(near.max(0.0) as usize).filter(|_| near >= 0.0);
        name.filter(|_| (x - near).abs() < 0.01).cloned().unwrap_or_default()
    };
    let mut mesh = chart.configure_mesh();
    mesh.disable_x_mesh().x_labels(names.len() * 2 + 1).x_label_formatter(&x_text);
    mesh.x_desc(plot.x).y_desc(plot.y).label_style(("sans-serif", 13));
    mesh.light_line_style(WHITE).draw().context("mesh")?;
    let ours: Vec<&Series> = plot.series.iter().filter(|s| s.style == SeriesStyle::Ours).collect();
    let width = 0.8 / ours.len().max(1) as f64;
    let left = |name: &str| {
        let at = ours.iter().position(|series| series.name == name).unwrap_or(0);
        at as f64 * width - 0.4
    };
    for series in &plot.series {
        let (colour, left) = (colour(plot, series), left(&series.name));
        if series.style == SeriesStyle::Ours {
            let boxes = series.points.iter().map(|&(x, y)| {
                Rectangle::new([(x + left, 0.0), (x + left + width * 0.92, y)], colour.filled())
            });
            chart.draw_series(boxes).context("bars")?;
        } else {
            let middle = left + width * 0.46;
            let points = series.points.iter();
            let marks =
                points.map(|&(x, y)| Circle::new((x + middle, y), 5, BLACK.stroke_width(2)));
            chart.draw_series(marks).context("marks")?;
        }
    }
    Ok(())
}

/// Says which series is which, beside the plot, so that it hides nothing.
fn legend(area: &Area<'_>, plot: &Plot) -> Result<()> {
    for (at, series) in plot.series.iter().enumerate() {
        let y = LEGEND_TOP + LEGEND_LINE * at as i32;
        let is_bar = matches!(plot.axis, Axis::Categories(_));
        let colour = colour(plot, series);
        match series.style {
            SeriesStyle::Ours if is_bar => {
                area.draw(&Rectangle::new([(2, y - 5), (16, y + 5)], colour.filled()))
            }
            SeriesStyle::Ours => {
                let line = vec![(0, y), (18, y)];
                area.draw(&PathElement::new(line, colour.stroke_width(width(plot, at))))
            }
            SeriesStyle::Paper if is_bar => {
                area.draw(&Circle::new((9, y), 5, BLACK.stroke_width(2)))
            }
            SeriesStyle::Paper => area.draw(&Circle::new((9, y), 5, colour.stroke_width(2))),
        }
        .context("legend")?;
        let style = ("sans-serif", 13).into_text_style(area);
        area.draw(&Text::new(label(series), (26, y - 7), style)).context("legend")?;
    }
    Ok(())
}

/// A line that is covered by others for half of its length is wider, so that it stays visible.
fn width(plot: &Plot, at: usize) -> u32 {
    let (points, near) = (&plot.series[at].points, y_max(plot) / 100.0);
    let hides = |other: &&Series| {
        let pairs = points.iter().zip(&other.points);
        let same = pairs.filter(|(a, b)| a.0 == b.0 && (a.1 - b.1).abs() < near);
        other.style == SeriesStyle::Ours && same.count() * 2 >= points.len()
    };
    let over = plot.series[at + 1..].iter().filter(hides).count();
    2 + 3 * over.min(3) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(axis: Axis) -> Plot {
        let points = vec![(0.0, 1.0), (1.0, 2.0), (2.0, 4.0)];
        Plot {
            x: "Packet size (B)",
            y: "Throughput (Gbit/s)",
            axis,
            series: vec![
                Series::ours("one credit", points.clone()),
                Series::paper("one credit", points),
            ],
        }
    }

    #[test]
    fn both_kinds_of_plots_name_their_axes_and_series() {
        let names = vec!["64".into(), "128".into(), "256".into()];
        for axis in [Axis::Linear, Axis::Doubling, Axis::Categories(names)] {
            let text = svg("A title", &plot(axis)).expect("it is drawn");
            for part in ["<svg", "Packet size (B)", "Throughput (Gbit/s)", "one credit (paper)"] {
                assert!(text.contains(part), "{part} is missing");
            }
        }
    }

    #[test]
    fn a_plot_of_nothing_is_drawn_all_the_same() {
        let empty =
            Plot { series: vec![Series::ours("none", vec![(0.0, 0.0)])], ..plot(Axis::Linear) };
        assert!(svg("Nothing", &empty).expect("it is drawn").contains("<svg"));
    }
}
