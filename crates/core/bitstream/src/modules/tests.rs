use proptest::prelude::*;

use super::*;
use crate::catalogue::{self, Catalogue};
use crate::identify;

/// The shortest module that has the form of one: nothing but the names of its exports.
pub(crate) fn module(filling: &[u8]) -> Vec<u8> {
    let mut exports = vec![4];
    for (name, kind) in
        [("memory", 2), ("snic_abi_version", 0), ("snic_buffer", 0), ("snic_process", 0)]
    {
        exports.push(name.len() as u8);
        exports.extend(name.as_bytes());
        exports.extend([kind, 0]);
    }
    let mut bytes = b"\0asm\x01\0\0\0\x07".to_vec();
    bytes.push(exports.len() as u8);
    bytes.extend(exports);
    // A section of its author's own, with an empty name.
    bytes.push(0);
    let mut left = filling.len() + 1;
    while left >= 0x80 {
        bytes.push(left as u8 | 0x80);
        left >>= 7;
    }
    bytes.push(left as u8);
    bytes.push(0);
    bytes.extend(filling);
    bytes
}

fn world() -> (Catalogue, CardProfile) {
    let catalogue = catalogue::builtin().expect("the built-in catalogue is valid");
    let card = catalogue.cards[0].clone();
    (catalogue, card)
}

#[test]
fn a_built_image_holds_its_modules_and_its_chain() {
    let (catalogue, card) = world();
    let chain: Vec<&NtType> = catalogue.nt_types.iter().take(3).collect();
    let small = module(b"");
    let large = module(&[7; 100_000]);
    let of = |slot: usize, bytes| EmbeddedModule { slot, nt: chain[slot].id.as_str(), bytes };
    let modules_of = [of(0, &small[..]), of(2, &large[..])];
    let build = ModuleBuild { card: &card, chain: &chain, modules: &modules_of, identity: None };
    let image = build.build().expect("possible");
    let file = parse(&image).expect("valid");
    assert_eq!(modules(&file), Ok(modules_of.to_vec()));
    assert_eq!(identify(&image), Ok(ChainRom::of(&chain).expect("valid")));
    file.check_card(&card).expect("its part");
    let sent = crate::with_known_control(&image).expect("valid");
    let sent = parse(&sent).expect("valid");
    assert_eq!(modules(&sent), Ok(modules_of.to_vec()), "as the card gets it");

    let identity = Some(build.derived_identity());
    let named = ModuleBuild { identity, ..build }.build().expect("possible");
    assert_eq!(identify(&named).map(|rom| rom.reported().identity).ok(), identity);
    let other = ModuleBuild { modules: &modules_of[..1], ..build };
    assert_ne!(other.derived_identity(), build.derived_identity(), "another module, another build");
    let plain = crate::build_test(&card, &chain, ByteSize::from_bytes(4_096)).expect("possible");
    assert_eq!(modules(&parse(&plain).expect("valid")), Ok(Vec::new()));
}

#[test]
fn modules_that_are_not_those_of_the_chain_are_refused() {
    let (catalogue, card) = world();
    let chain: Vec<&NtType> = catalogue.nt_types.iter().take(2).collect();
    let bytes = module(b"");
    let build = |modules: &[EmbeddedModule<'_>]| {
        ModuleBuild { card: &card, chain: &chain, modules, identity: None }.build()
    };
    let (first, second) = (chain[0].id.as_str(), chain[1].id.as_str());
    let of = |slot, nt| EmbeddedModule { slot, nt, bytes: &bytes };
    let refused = |modules: &[EmbeddedModule<'_>]| match build(modules) {
        Err(InvalidModuleBuild::Modules(error)) => error,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(&[of(2, first)]), InvalidModules::Slot(2));
    assert_eq!(refused(&[of(1, second), of(0, first)]), InvalidModules::Slot(0));
    assert_eq!(refused(&[]), InvalidModules::Count(0));
    assert!(matches!(refused(&[of(0, second)]), InvalidModules::OtherNt { slot: 0, .. }));
    assert!(matches!(refused(&[of(0, "")]), InvalidModules::OtherNt { slot: 0, .. }));
    let huge = vec![0; MODULE_BYTES_MAX + 1];
    let error = refused(&[EmbeddedModule { slot: 0, nt: first, bytes: &huge }]);
    assert!(error.to_string().contains("at most 262144"), "{error}");
}

proptest! {
    #[test]
    fn a_damaged_section_is_read_or_refused(
        damage in prop::collection::vec((0_usize..200, any::<u8>()), 1..8),
    ) {
        let (catalogue, card) = world();
        let chain: Vec<&NtType> = catalogue.nt_types.iter().take(2).collect();
        let bytes = module(b"filling");
        let of = [EmbeddedModule { slot: 1, nt: chain[1].id.as_str(), bytes: &bytes }];
        let build = ModuleBuild { card: &card, chain: &chain, modules: &of, identity: None };
        let mut image = build.build().expect("possible");
        let start = frames_at(&image) + FRAME_BYTES;
        for (at, byte) in damage {
            image[start + at] ^= byte;
        }
        let file = parse(&image).expect("the packets are as they were");
        if let Ok(found) = modules(&file) {
            let _ = check_modules(&found);
        }
    }
}
