//! Answers of NTs in hardware that are told a DAG's configuration by their windows.

use std::collections::BTreeSet;

use snic_domain::CardId;

use crate::store::records::UnconfiguredNts;

/// Region and slot of an NT.
type Window = (u8, u8);

/// Answers of the NTs of a DAG's card to its configuration.
#[derive(Debug, Clone, Default)]
pub(crate) struct NtAnswers {
    /// NTs that did not take it.
    lacking: Option<UnconfiguredNts>,
    /// NTs that are told it by the commit under way: whether they took it is not known yet.
    asked: Option<UnconfiguredNts>,
}

/// Those that are of this card.
fn on(nts: Option<UnconfiguredNts>, card: &CardId) -> BTreeSet<Window> {
    nts.filter(|nts| nts.card == *card).map(|nts| nts.at).unwrap_or_default()
}

impl NtAnswers {
    /// As the store has them.
    pub const fn restore(lacking: Option<UnconfiguredNts>) -> Self {
        Self { lacking, asked: None }
    }

    /// NTs that lack the configuration, as far as a daemon that starts now would know: those that were asked have not said that
    /// they took it.
    pub fn stored(&self) -> Option<UnconfiguredNts> {
        let card = &self.lacking.as_ref().or(self.asked.as_ref())?.card;
        let of = |nts: &Option<UnconfiguredNts>| on(nts.clone(), card);
        UnconfiguredNts::of(card, of(&self.lacking).union(&of(&self.asked)).copied().collect())
    }

    /// NTs that did not take it.
    pub const fn lacking(&self) -> Option<&UnconfiguredNts> {
        self.lacking.as_ref()
    }

    /// Whether no NT lacks it, and none is being told.
    pub const fn is_all_known(&self) -> bool {
        self.lacking.is_none() && self.asked.is_none()
    }

    /// The DAG is to be on this card. There NTs lack it until they are told again: its rows may be as they were.
    pub fn leave_others(&mut self, card: &CardId) {
        let is_elsewhere = |nts: &mut UnconfiguredNts| nts.card != *card;
        self.lacking.take_if(is_elsewhere);
        self.asked.take_if(is_elsewhere);
    }

    /// NTs are told it; says whether that is to be stored.
    pub fn ask(&mut self, card: &CardId, at: impl Iterator<Item = Window>) -> bool {
        let before = self.stored();
        let mut all = on(self.asked.take(), card);
        all.extend(at);
        self.asked = UnconfiguredNts::of(card, all);
        self.stored() != before
    }

    /// NTs lack it from now on, or do not; says whether that is to be stored. All but those that are `used` are forgotten.
    pub fn ended(
        &mut self,
        card: &CardId,
        ends: impl Iterator<Item = (Window, bool)>,
        used: &BTreeSet<Window>,
    ) -> bool {
        let before = self.stored();
        let mut lacking = on(self.lacking.take(), card);
        let mut asked = on(self.asked.take(), card);
        for (window, is_lacking) in ends {
            asked.remove(&window);
            match is_lacking {
                true => lacking.insert(window),
                false => lacking.remove(&window),
            };
        }
        lacking.retain(|at| used.contains(at));
        asked.retain(|at| used.contains(at));
        self.lacking = UnconfiguredNts::of(card, lacking);
        self.asked = UnconfiguredNts::of(card, asked);
        self.stored() != before
    }

    /// Nobody knows whether the NTs that were told by now took it: they count as lacking it. Gives all `used` ones that do.
    pub fn doubt(&mut self, card: &CardId, used: &BTreeSet<Window>) -> BTreeSet<Window> {
        let mut lacking = on(self.lacking.take(), card);
        lacking.extend(on(self.asked.take(), card));
        lacking.retain(|at| used.contains(at));
        self.lacking = UnconfiguredNts::of(card, lacking.clone());
        lacking
    }

    /// Explanation which NTs lack it, and what to do; nothing where none does.
    pub fn explanation(&self) -> Option<String> {
        const NAMED: usize = 4;
        let UnconfiguredNts { card, at } = self.lacking()?;
        let count = at.len();
        let at = at.iter().take(NAMED);
        let mut at: Vec<String> =
            at.map(|(region, slot)| format!("region {region} slot {slot}")).collect();
        if count > NAMED {
            at.push(format!("{} more", count - NAMED));
        }
        Some(format!(
            "{count} network tasks did not take their configuration and drop its packets, on card {card}: {}; they are \
             asked again from time to time; change the configuration, have the operator drain these regions, or delete \
             the DAG and create it again",
            at.join(", ")
        ))
    }
}
