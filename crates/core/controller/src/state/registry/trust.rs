//! Trust in bitstreams that were uploaded before the keys that count were what they are.
//!
//! An upload is refused unless a key that counts has signed it. When keys change, each bitstream is judged again by the signatures
//! that it came with: one that would be refused now is revoked. No plan uses it, and whoever is in it
//! goes elsewhere as soon as there is a place. The keys are never stored: they are those of the daemon's settings.

use std::collections::BTreeSet;

use snic_bitstream::signature::{NotTrusted, Trust};
use snic_domain::{Bitstream, BitstreamId};

use super::Registry;
use crate::store::records::Record;
use crate::store::tx::Tx;

impl Registry {
    /// These keys count from now on. Gives the bitstreams that are judged otherwise than before. Callers withhold from
    /// plans what is revoked, once they have seen what changed. Time O(images).
    pub fn set_trust(&mut self, trust: Option<Trust>) -> BTreeSet<BitstreamId> {
        self.trust = trust;
        let ids: Vec<BitstreamId> = self.bitstreams.keys().cloned().collect();
        ids.into_iter().filter(|id| self.judge(id)).collect()
    }

    /// The keys that count.
    pub const fn trust(&self) -> Option<&Trust> {
        self.trust.as_ref()
    }

    /// Judges a bitstream by the keys that count; says whether the judgement is another one than before.
    pub(super) fn judge(&mut self, id: &BitstreamId) -> bool {
        let Some(trust) = &self.trust else { return self.revoked.remove(id).is_some() };
        let Some(record) = self.bitstreams.get_mut(id) else { return false };
        let judged = trust.signer_of_stored(&record.bitstream);
        let before = (record.bitstream.signed_by.clone(), self.revoked.remove(id));
        let (signer, refused) = match judged {
            Ok(signer) => (signer, None),
            Err(why) => (None, Some(why)),
        };
        record.bitstream.signed_by = signer.clone();
        self.revoked.extend(refused.clone().map(|why| (id.clone(), why)));
        if signer != before.0 && record.rejected.is_none() {
            let bitstream = record.bitstream.clone();
            self.replace_in_catalogue(bitstream);
        }
        (signer, refused) != before
    }

    /// Has plans see a bitstream as it is now. What is withheld stays so.
    fn replace_in_catalogue(&mut self, bitstream: Bitstream) {
        let withheld = self.catalogue().withheld();
        let catalogue = self.catalogue_mut();
        catalogue.withhold(&BTreeSet::new());
        catalogue.insert_bitstream(bitstream);
        catalogue.withhold(&withheld);
    }

    /// Stores a bitstream as it was judged, so that those who watch see it.
    pub fn store_bitstream(&self, tx: &mut Tx, id: &BitstreamId) {
        tx.put(Record::Bitstream(self.bitstreams[id].clone()));
    }

    /// Why a bitstream would be refused now, if so.
    pub fn revoked(&self, id: &BitstreamId) -> Option<&NotTrusted> {
        self.revoked.get(id)
    }

    /// All that would be refused now.
    pub fn all_revoked(&self) -> impl Iterator<Item = &BitstreamId> {
        self.revoked.keys()
    }
}
