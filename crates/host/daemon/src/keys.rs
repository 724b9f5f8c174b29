//! The keys whose signatures count: for uploads, and for what was uploaded before.

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use anyhow::{Context as _, Result};
use snic_bitstream::catalogue::{CheckedImage, UploadRules, with_profiles};
use snic_bitstream::signature::Trust;
use snic_front::uploads::{Upload, UploadCheck, UploadFindings, UploadProblem};
use snic_server::shell::ControlPlane;

use crate::settings::Settings;

/// Rules for uploads, with the keys that count now. Clones share them.
#[derive(Debug, Clone)]
pub struct Keys {
    rules: Arc<RwLock<UploadRules>>,
    in_fleet: bool,
}

impl Keys {
    /// Reads the key files and the card profiles that the settings name.
    pub fn read(settings: &Settings) -> Result<Self> {
        let trust = Trust::read(&settings.signatures)?;
        let catalogue = with_profiles(settings.profiles_dir.as_deref())?;
        let rules = Arc::new(RwLock::new(UploadRules { trust, catalogue }));
        Ok(Self { rules, in_fleet: settings.fleet.is_some() })
    }

    /// Keys that count for bitstreams that were uploaded before. `None` at a host of a fleet without keys of its own:
    /// there the fleet's word counts.
    pub fn for_stored(&self) -> Option<Trust> {
        let trust = self.rules.read().unwrap_or_else(PoisonError::into_inner).trust.clone();
        (trust.has_keys() || !self.in_fleet).then_some(trust)
    }

    /// Checks uploads against the card profiles, their floor plans, and the keys that count then.
    pub fn upload_check(&self) -> UploadCheck {
        let rules = Arc::clone(&self.rules);
        UploadCheck::new(move |upload: Upload<'_>| {
            rules
                .read()
                .unwrap_or_else(PoisonError::into_inner)
                .check(upload.bytes, upload.signature, upload.declared, upload.nts)
                .map(|CheckedImage { signed_by, regions, modules }| UploadFindings {
                    signed_by,
                    regions,
                    modules,
                })
                .map_err(|error| UploadProblem { field: error.field(), what: error.to_string() })
        })
    }

    /// Reads `[signatures]` of the settings file again, and the key files that it names. Other settings stay as they are.
    ///
    /// # Errors
    /// The settings or a key cannot be read; the keys before count then.
    pub fn reload(&self, settings: &Path, plane: &ControlPlane) -> Result<()> {
        let settings = Settings::read(settings).context("read the settings again")?;
        let trust = Trust::read(&settings.signatures)?;
        let mut rules = self.rules.write().unwrap_or_else(PoisonError::into_inner);
        if rules.trust == trust {
            return Ok(());
        }
        rules.trust = trust;
        drop(rules);
        plane.set_keys(self.for_stored());
        tracing::info!("other keys count for bitstreams");
        Ok(())
    }
}
