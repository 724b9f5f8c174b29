//! Images are added to a bitstream that there is, and removed from one that has others.

use snic_domain::{
    Bitstream, BitstreamId, Digest, RegionImage, RegionImages, Timestamp, UnfitImage,
};

use super::Registry;
use super::bitstreams::check_size;
use crate::protocol::{BitstreamView, Caller, ControlError};
use crate::store::records::Record;
use crate::store::tx::Tx;

impl Registry {
    /// Adds the images of a declared bitstream to the one of its name. They have to be of the same build.
    ///
    /// # Errors
    /// They are not of the same build; one of their regions has an image; their bytes were rejected; the bitstream is being
    /// deleted; or they would be beyond its owner's quota. Nothing has changed then.
    pub(super) fn add_image(
        &mut self,
        tx: &mut Tx,
        declared: &Bitstream,
    ) -> Result<BitstreamView, ControlError> {
        let images = self.check_new_image(tx.now(), declared)?;
        self.set_images(tx, &declared.id, images);
        self.judge(&declared.id);
        Ok(self.view_of_bitstream(&self.bitstreams[&declared.id]))
    }

    /// The images that the bitstream would have with those that are declared.
    ///
    /// # Errors
    /// The image cannot be added: the same errors as [`Registry::add_image`] gives.
    pub(super) fn check_new_image(
        &self,
        now: Timestamp,
        declared: &Bitstream,
    ) -> Result<RegionImages, ControlError> {
        let resource = format!("bitstreams/{}", declared.id);
        let present = &self.bitstreams[&declared.id].bitstream;
        let extended = present.with_images_of(declared).map_err(|error| match error {
            UnfitImage::Exists => ControlError::exists(&resource),
            UnfitImage::Differs { field, .. } => ControlError::invalid(field, error.to_string()),
            UnfitImage::Conflict(error) => ControlError::precondition(&resource, error.to_string()),
        })?;
        self.check_stays(&declared.id)?;
        declared.images.iter().try_for_each(check_size)?;
        if let Some(owner) = declared.id.owner() {
            for image in &declared.images {
                self.check_not_rejected(&owner, image.digest, now)
                    .map_err(|text| ControlError::precondition(&resource, text))?;
            }
            self.check_image_quota(&owner, &declared.images)?;
        }
        Ok(extended.images)
    }

    /// The image of a bitstream that `caller` wants to delete.
    ///
    /// # Errors
    /// There is no such bitstream or image, or no other image; the caller may not; or the bitstream is not as it was
    /// read.
    pub fn check_image_deletion(
        &self,
        caller: &Caller,
        id: &BitstreamId,
        digest: Digest,
        etag: Option<&str>,
    ) -> Result<&RegionImage, ControlError> {
        self.check_bitstream_change(caller, id, etag, "change")?;
        self.check_stays(id)?;
        let images = &self.bitstreams[id].bitstream.images;
        let Some(image) = images.with_digest(digest) else {
            return Err(ControlError::not_found(format!("the image {digest} of bitstreams/{id}")));
        };
        if images.len() == 1 {
            let text = "it has no other image; delete the bitstream";
            return Err(ControlError::precondition(format!("bitstreams/{id}"), text));
        }
        Ok(image)
    }

    /// Removes an image that no region is to hold any more, and its bytes with the last bitstream that has them.
    pub fn remove_image(&mut self, tx: &mut Tx, id: &BitstreamId, digest: Digest) {
        let mut images = self.bitstreams[id].bitstream.images.clone();
        images.remove(digest).expect("it was just looked at");
        self.set_images(tx, id, images);
        self.drop_unused_blob(tx, digest);
    }

    fn check_stays(&self, id: &BitstreamId) -> Result<(), ControlError> {
        match self.catalogue.is_withheld(id) {
            true => {
                Err(ControlError::precondition(format!("bitstreams/{id}"), "it is being deleted"))
            }
            false => Ok(()),
        }
    }

    /// The bitstream has these images from now on.
    fn set_images(&mut self, tx: &mut Tx, id: &BitstreamId, images: RegionImages) {
        let record = self.bitstreams.get_mut(id).expect("it was just looked at");
        let before = record.bitstream.clone();
        record.bitstream.images = images;
        let record = record.clone();
        tx.put(Record::Bitstream(record.clone()));
        self.discharge_bitstream(&before);
        self.charge_bitstream(&record.bitstream);
        if record.rejected.is_none() {
            self.catalogue_mut().insert_bitstream(record.bitstream);
        }
    }
}
