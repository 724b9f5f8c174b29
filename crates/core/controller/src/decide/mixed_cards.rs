//! Hosts with cards of two kinds: regions, and processors.
//!
//! Where a DAG has a place on both, the BlueField-3 study's guidelines decide, as they do between implementations
//! on one card: first the place that fewest speak against, then the one that most speak for. They are about the
//! DPA only, so regions have none; between equals the policy's order of cards decides as always.

use std::cmp::Reverse;

use snic_domain::{CardModel, Explanation, Infeasible, OtherCard};
use snic_planner::Ledger;

use crate::decide::card_choice::CardRank;
use crate::protocol::Choice;

/// A card's answer to a DAG.
pub(crate) struct CardAnswer {
    pub model: CardModel,
    pub rank: CardRank,
    pub place: Result<Choice, Infeasible>,
}

/// Whether cards are of two kinds.
pub(crate) fn are_mixed<'a>(ledgers: impl Iterator<Item = &'a Ledger>) -> bool {
    let (mut regions, mut programs) = (false, false);
    for ledger in ledgers {
        let runs_programs = !ledger.profile().processors.is_empty();
        regions |= !runs_programs;
        programs |= runs_programs;
    }
    regions && programs
}

/// Number of points against a place, and for it negated: fewer is better.
fn advice(why: &Explanation) -> (usize, Reverse<usize>) {
    let count = |of: fn(&snic_domain::ProgramExplanation) -> &Vec<String>| -> usize {
        why.programs.iter().map(|program| of(program).len()).sum()
    };
    (count(|program| &program.against), Reverse(count(|program| &program.guidelines)))
}

/// The place by the guidelines, with what was said of cards of other models; `answers` are in the order of the
/// policy. Else all that the cards lack.
pub(crate) fn best_place(mut answers: Vec<CardAnswer>) -> Result<Choice, Option<Infeasible>> {
    let key = |(at, answer): &(usize, &CardAnswer)| {
        let choice = answer.place.as_ref().ok()?;
        Some((answer.rank, advice(&choice.plan.explanation), *at))
    };
    let placed = answers.iter().enumerate().filter(|(_, answer)| answer.place.is_ok());
    let Some((at, _)) = placed.min_by_key(key) else {
        let mut shortages = Vec::new();
        for CardAnswer { place, .. } in answers {
            let Err(refusal) = place else { continue };
            let new = refusal.shortages.into_iter().filter(|short| !shortages.contains(short));
            shortages.extend(new.collect::<Vec<_>>());
        }
        return Err((!shortages.is_empty()).then_some(Infeasible { shortages }));
    };
    let taken = answers.remove(at);
    let mut choice = taken.place.expect("only places were compared");
    let mut others: Vec<OtherCard> = Vec::new();
    for CardAnswer { model, rank, place } in answers {
        if model == taken.model || others.iter().any(|other| other.model == model) {
            continue;
        }
        let reason = reason(&choice.plan.explanation, (taken.rank, rank), &place);
        others.push(OtherCard { model, reason });
    }
    choice.plan.explanation.other_cards = others;
    Ok(choice)
}

/// Why another card was not taken.
fn reason(
    taken: &Explanation,
    (rank, other_rank): (CardRank, CardRank),
    place: &Result<Choice, Infeasible>,
) -> String {
    let other = match place {
        Err(refusal) => return refusal.to_string(),
        Ok(choice) => &choice.plan.explanation,
    };
    if rank != other_rank {
        return "possible; it does not answer, or meets fewer of the DAG's wishes".into();
    }
    let first = |why: &Explanation, of: fn(&snic_domain::ProgramExplanation) -> &Vec<String>| {
        why.programs.iter().find_map(|program| of(program).first().cloned()).unwrap_or_default()
    };
    match (advice(taken), advice(other)) {
        ((few, _), (more, _)) if few < more => {
            format!("possible, but {} speaks against it", first(other, |one| &one.against))
        }
        ((_, most), (_, fewer)) if most < fewer => {
            format!(
                "possible, but {} speaks for the card that was taken",
                first(taken, |one| &one.guidelines)
            )
        }
        _ => "possible and as good; the policy's order of cards decided".into(),
    }
}

#[cfg(test)]
mod tests {
    use snic_domain::{CardId, DagSpec, PacketSizes, Resource};
    use snic_planner::{Effort, PlanCatalogue};
    use snic_processors::{Intensity, NicModel, builtin};

    use super::*;
    use crate::decide::admission::{AdmissionRules, Candidate, CardPlan, Rejection, decide};
    use crate::decide::card_choice::CardWishes;
    use crate::decide::memory_use::MemoryAllowance;
    use crate::decide::rows::RowPool;
    use crate::decide::thread_use::ThreadAllowance;
    use crate::fixtures::{catalogue, gbps, name, nt_id, profile};
    use crate::protocol::Admission;

    fn bluefield() -> NicModel {
        let models = builtin().expect("our own files");
        let mut all = models.into_iter().filter(|model| model.model.as_str() == "bluefield-3");
        all.next().expect("it is there")
    }

    /// The programs of `l2-reflector` are those of `aes`, which regions have, too; those of `lb` compute.
    fn model() -> NicModel {
        let mut model = bluefield();
        let mut more = Vec::new();
        for one in model.implementations.iter().filter(|one| one.nt.as_str() == "l2-reflector") {
            let mut aes = one.clone();
            aes.nt = nt_id("aes");
            let mut lb = one.clone();
            (lb.nt, lb.intensity) = (nt_id("lb"), Intensity::Compute);
            more.push(aes);
            // On the DPA only.
            if lb.on == snic_domain::ProcessorKind::Dpa {
                more.push(lb);
            }
        }
        model.implementations = more;
        model
    }

    fn on(
        order: [&str; 2],
        threads: ThreadAllowance,
        (nt, gbit): (&str, u64),
    ) -> Result<Admission, Rejection> {
        let mut catalogue: PlanCatalogue = catalogue();
        catalogue.set_models([model()]);
        let ledgers = order.map(|id| {
            let profile = match id {
                "dpu" => bluefield().card_profile().expect("a card"),
                _ => profile(4),
            };
            Ledger::new(CardId::new(id).expect("a label"), profile)
        });
        let rows = RowPool::new();
        let plans = ledgers.each_ref().map(|ledger| CardPlan {
            id: ledger.card(),
            ledger,
            rows: &rows,
            is_ready: true,
            guaranteed: gbps(0),
            borrowers: Vec::new(),
        });
        let spec = DagSpec {
            packet_sizes: PacketSizes::only(1_024),
            ..DagSpec::chain(&[nt_id(nt)], gbps(gbit))
        };
        let dag = snic_domain::Dag::new(spec).expect("a chain");
        let (name, wishes) = (name("new"), CardWishes::default());
        let candidate = Candidate {
            name: &name,
            dag: &dag,
            serving: None,
            withdrawn: None,
            wishes: &wishes,
            memory: &MemoryAllowance::unlimited(),
            threads,
        };
        decide(&plans, &catalogue, AdmissionRules::default(), &candidate, &Effort::new())
    }

    #[test]
    fn the_guidelines_decide_between_regions_and_processors() {
        for order in [["dpu", "fpga"], ["fpga", "dpu"]] {
            let parallel =
                on(order, ThreadAllowance::unlimited(), ("aes", 10)).expect("room on both");
            assert_eq!(parallel.choice.card.as_str(), "dpu");
            let [other] = &parallel.choice.plan.explanation.other_cards[..] else { panic!() };
            assert_eq!(other.model.as_str(), "tiny");
            assert!(
                other.reason.contains("guideline 2") && other.reason.contains("speaks for"),
                "{other:?}"
            );
            let computes =
                on(order, ThreadAllowance::unlimited(), ("lb", 10)).expect("room on both");
            assert_eq!(computes.choice.card.as_str(), "fpga");
            let [other] = &computes.choice.plan.explanation.other_cards[..] else { panic!() };
            assert!(
                other.reason.contains("guideline 1") && other.reason.contains("speaks against"),
                "{other:?}"
            );
        }
    }

    #[test]
    fn where_one_kind_has_no_place_the_other_is_taken_and_where_none_has_both_are_named() {
        let few = ThreadAllowance::new(3, 1);
        let small = on(["dpu", "fpga"], few, ("aes", 10)).expect("regions");
        assert_eq!(small.choice.card.as_str(), "fpga", "5 threads are more than 2");
        let [other] = &small.choice.plan.explanation.other_cards[..] else { panic!() };
        assert!(other.reason.contains("threads_max"), "{other:?}");
        let Err(Rejection::NoPlace(none)) = on(["dpu", "fpga"], few, ("aes", 90)) else { panic!() };
        let lacks = |resource| none.shortages.iter().any(|short| short.resource == resource);
        assert!(lacks(Resource::Threads), "{none}");
        assert!(lacks(Resource::Regions) || lacks(Resource::NtBandwidth), "{none}");
    }
}
