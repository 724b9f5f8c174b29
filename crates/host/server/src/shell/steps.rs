//! The cards' steps under way, for traces and metrics: the call that each belongs to, and when it
//! began.

use std::collections::HashMap;
use std::time::Instant;

use snic_controller::{CardCommand, CardReport, Ticket};
use snic_domain::CardId;
use snic_telemetry::metrics::instruments;
use snic_telemetry::trace::{TARGET, Trace};
use tracing::Span;
use tracing::field::Empty;

struct TracedStep {
    span: Span,
    trace: Trace,
    begun: Instant,
    /// No DAG waits for the region that is loaded.
    hidden: bool,
}

/// The steps that cards have not answered yet.
#[derive(Default)]
pub(super) struct Steps(HashMap<(CardId, Ticket), TracedStep>);

impl Steps {
    /// Records a command to a card. A load is hidden if no DAG waits for it. Returns the step as
    /// the parent of spans elsewhere.
    pub fn begin(
        &mut self,
        card: &CardId,
        command: &CardCommand,
        trace: Trace,
        hidden: bool,
    ) -> Option<String> {
        let id = card.as_str();
        let (ticket, span) = match command {
            // Counters are read all the time, for no call.
            CardCommand::Sample { .. } => return None,
            CardCommand::LoadRole { ticket, force } => (
                *ticket,
                trace.step(|| {
                    tracing::debug_span!(target: TARGET, parent: None, "snic.load_role",
                    snic.card = id, snic.forced = force, snic.result = Empty)
                }),
            ),
            CardCommand::Reset { ticket, at_once } => (
                *ticket,
                trace.step(|| {
                    tracing::debug_span!(target: TARGET, parent: None, "snic.reset",
                    snic.card = id, snic.forced = at_once, snic.result = Empty)
                }),
            ),
            CardCommand::Load { ticket, region, .. } => (
                *ticket,
                trace.step(|| {
                    tracing::debug_span!(target: TARGET, parent: None, "snic.reconfigure",
                    snic.card = id, snic.region = region.0, snic.hidden = hidden, snic.result = Empty)
                }),
            ),
            CardCommand::State { ticket, region, order } => (
                *ticket,
                trace.step(|| {
                    tracing::debug_span!(target: TARGET, parent: None, "snic.state",
                    snic.card = id, snic.region = region.0, snic.order = ?order, snic.result = Empty)
                }),
            ),
            CardCommand::Program { ticket, delta, .. } => (
                *ticket,
                trace.step(|| {
                    tracing::debug_span!(target: TARGET, parent: None, "snic.tables",
                    snic.card = id, snic.words = delta.words(), snic.result = Empty)
                }),
            ),
            CardCommand::ReadBack { ticket, .. } => (
                *ticket,
                trace.step(|| {
                    tracing::debug_span!(target: TARGET, parent: None, "snic.read_back",
                    snic.card = id, snic.result = Empty)
                }),
            ),
        };
        let parent = snic_telemetry::trace::parent(&span);
        let step = TracedStep { span, trace, begun: Instant::now(), hidden };
        self.0.insert((card.clone(), ticket), step);
        parent
    }

    /// A card replied: returns the trace that the step belongs to.
    pub fn end(&mut self, card: &CardId, report: &CardReport) -> Trace {
        let (ticket, well) = match report {
            CardReport::Loaded { ticket, result, .. } => (ticket, result.is_ok()),
            CardReport::Programmed { ticket, result, .. } => (ticket, result.is_ok()),
            CardReport::State { ticket, result, .. } => (ticket, result.is_ok()),
            CardReport::ReadBack { ticket, .. } | CardReport::Released { ticket } => (ticket, true),
            CardReport::NotReleased { ticket, .. } | CardReport::NotReset { ticket, .. } => {
                (ticket, false)
            }
            CardReport::Lost { .. } => {
                self.0.retain(|(of, _), _| of != card);
                return Trace::default();
            }
            CardReport::Sampled { .. } | CardReport::Stuck { .. } => return Trace::default(),
        };
        let Some(step) = self.0.remove(&(card.clone(), *ticket)) else { return Trace::default() };
        step.span.record("snic.result", if well { "ok" } else { "failed" });
        if matches!(report, CardReport::Loaded { .. }) {
            let seconds = step.begun.elapsed().as_secs_f64();
            instruments().reconfigured(card.as_str(), well, step.hidden, seconds);
        }
        step.trace
    }
}
