//! Ids, addresses and units against rules that are written here a second time.

use std::time::Duration;

use proptest::prelude::*;
use rstest::rstest;
use snic_domain::{
    Area, Bandwidth, BitstreamId, ByteSize, Cycles, DagUid, Digest, Headroom, LatencyBound,
    NtTypeId, PciAddress, RegionId, Resource, TenantId, Timestamp, VirtualFunctions, VmId,
};

/// A DNS label that begins with a letter (RFC 1035, 2.3.1), by looking at one character at a time.
fn is_label(text: &str) -> bool {
    let mut last = ' ';
    for (i, c) in text.chars().enumerate() {
        let allowed = match i {
            0 => c.is_ascii_lowercase(),
            _ => matches!(c, 'a'..='z' | '0'..='9' | '-'),
        };
        if !allowed || i >= 63 {
            return false;
        }
        last = c;
    }
    !matches!(last, ' ' | '-')
}

/// A number and a unit, as `Display` writes them, back to the number.
fn read_back(text: &str, units: &[(&str, u128)]) -> Option<u128> {
    let (number, unit) = text.split_once(' ')?;
    let scale = units.iter().find(|(name, _)| *name == unit)?.1;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits = u32::try_from(fraction.len()).ok()?;
    let part: u128 = fraction.parse().ok()?;
    Some(whole.parse::<u128>().ok()? * scale + part * scale / 10u128.pow(digits))
}

proptest! {
    #[test]
    fn a_tenant_id_is_a_label(text in "[a-cA-C0-1.-]{0,4}|[a-z][a-z0-9-]{58,66}") {
        prop_assert_eq!(TenantId::new(&text).is_ok(), is_label(&text), "{}", text);
    }

    /// `NAME` is the provider's, `TENANT.NAME` that tenant's, and there is no third part.
    #[test]
    fn an_owned_id_is_one_label_or_two(text in "[a-b0.-]{0,6}") {
        let parts: Vec<&str> = text.split('.').collect();
        let expected = parts.len() <= 2 && parts.iter().all(|part| is_label(part));
        let id = NtTypeId::new(&text);
        prop_assert_eq!(id.is_ok(), expected, "{}", text);
        prop_assert_eq!(BitstreamId::new(&text).is_ok(), expected);
        if let Ok(id) = id {
            let owner = id.owner().map(|owner| owner.as_str().to_owned());
            prop_assert_eq!(owner.as_deref(), (parts.len() == 2).then(|| parts[0]));
            let tenant = TenantId::new(parts[0]).expect("a label");
            prop_assert_eq!(id.is_owned_by(&tenant), parts.len() == 2);
        }
    }

    #[test]
    fn a_uid_is_read_back(row: u16, incarnation in 1u32..1 << 16) {
        if let Some(uid) = DagUid::new(row, incarnation) {
            prop_assert_eq!((uid.row(), uid.incarnation()), (row, incarnation));
            prop_assert_eq!(DagUid::from_raw(uid.raw()), uid);
        }
    }

    #[test]
    fn a_digest_is_read_back_from_words_and_text(bytes: [u8; 32]) {
        let digest = Digest::from_bytes(bytes);
        prop_assert_eq!(Digest::from_words(digest.words()), digest);
        prop_assert_eq!(digest.to_string().parse(), Ok(digest));
        prop_assert_eq!(digest.to_string().to_uppercase().parse(), Ok(digest));
        prop_assert!(digest.to_string()[1..].parse::<Digest>().is_err());
    }

    #[test]
    fn a_machine_id_is_36_characters_of_a_uuid(bytes: [u8; 16], cut in 0usize..37) {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
        let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
        let text = parts.join("-");
        let id = VmId::new(&text).expect("a UUID");
        prop_assert_eq!(id.as_str(), text.to_lowercase());
        let mut shorter = text;
        if cut < 36 {
            shorter.remove(cut);
            prop_assert!(VmId::new(&shorter).is_err(), "{}", shorter);
        }
    }

    /// Function n is `first_offset + n * stride` routing ids behind the physical function, or it
    /// has no address: nothing wraps around.
    #[test]
    fn addresses_never_wrap(
        base: u16, count in 0u16..200, offset in 0u16..400, stride in 0u16..400, function in 0u16..250
    ) {
        let physical_function = PciAddress { domain: 0, routing_id: base };
        let all = VirtualFunctions { physical_function, count, first_offset: offset, stride };
        let id = u32::from(base) + u32::from(offset) + u32::from(function) * u32::from(stride);
        let has = function < count && offset > 0 && stride > 0 && id <= 0xFFFF;
        let expected = has.then_some(PciAddress { domain: 0, routing_id: id as u16 });
        prop_assert_eq!(all.address(function), expected);
    }

    /// The printed number is the amount, cut to three decimals.
    #[test]
    fn a_printed_amount_is_near_the_amount(value: u64) {
        let rates =
            [("bit/s", 1), ("kbit/s", 1_000), ("Mbit/s", 1_000_000), ("Gbit/s", 1_000_000_000)];
        let sizes = [("bytes", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];
        for (text, units) in [
            (Bandwidth::from_bps(value).to_string(), &rates),
            (ByteSize::from_bytes(value).to_string(), &sizes),
        ] {
            let back = read_back(&text, units);
            let near = back.is_some_and(|back| {
                back <= u128::from(value) && u128::from(value) - back <= u128::from(value) / 1_000 + 2
            });
            prop_assert!(near, "{} for {}", text, value);
        }
    }

    #[test]
    fn sums_saturate_and_checked_ones_say_so(a: u64, b: u64) {
        let (x, y) = (Bandwidth::from_bps(a), Bandwidth::from_bps(b));
        let exact = u128::from(a) + u128::from(b);
        prop_assert_eq!(u128::from((x + y).get()), exact.min(u128::from(u64::MAX)));
        prop_assert_eq!(x.checked_add(y).is_some(), exact <= u128::from(u64::MAX));
        prop_assert_eq!(x.checked_sub(y).map(Bandwidth::get), a.checked_sub(b));
        prop_assert_eq!(x.saturating_sub(y).get(), a.max(b) - b);
        prop_assert_eq!([x, y].into_iter().sum::<Bandwidth>(), x + y);
    }

    /// A region has room for two NTs exactly when it has room for their sum, kind by kind; and it
    /// is over-full, in thousandths, exactly when something does not fit.
    #[test]
    fn area_is_compared_kind_by_kind(region: [u8; 3], used: [u8; 3]) {
        let area = |[lut, ramb36, dsp]: [u8; 3]| {
            Area { lut: lut.into(), ramb36: ramb36.into(), dsp: dsp.into() }
        };
        let fits = region.iter().zip(used).all(|(all, used)| used <= *all);
        prop_assert_eq!(area(region).fits(area(used)), fits);
        let fill = |(all, used): (&u8, u8)| match (*all, used) {
            (_, 0) => 0,
            (0, _) => 1_000,
            (all, used) => (u32::from(used) * 1_000).div_ceil(all.into()),
        };
        let fullest = region.iter().zip(used).map(fill).max().unwrap_or(0);
        prop_assert_eq!(area(region).fill_permille(area(used)), fullest);
        let both = area(region) + area(used);
        prop_assert!(both.fits(area(region)) && both.fits(area(used)));
    }

    #[test]
    fn cycles_take_their_time_at_any_clock(cycles in 0u64..1 << 40, mhz in 1u64..1_000) {
        let nanos = u128::from(cycles) * 1_000 / u128::from(mhz);
        prop_assert_eq!(Cycles::new(cycles).duration(mhz * 1_000_000).as_nanos(), nanos);
    }

    #[test]
    fn time_goes_forward_and_ends(start: u64, more: u64) {
        let later = Timestamp::from_nanos(start) + Duration::from_nanos(more);
        prop_assert_eq!(later.as_nanos(), start.saturating_add(more));
        let passed = Duration::from_nanos(later.as_nanos() - start);
        prop_assert_eq!(later.since(Timestamp::from_nanos(start)), passed);
        let never = Timestamp::from_nanos(start).since(later + Duration::from_nanos(1));
        prop_assert_eq!(never, Duration::ZERO);
    }
}

/// The rest of a resource is told with the place where it is tightest.
#[rstest]
#[case(Resource::IngressBandwidth, None, None, "ingress bandwidth: 10 Gbit/s held, 90 Gbit/s left")]
#[case(
    Resource::NtBandwidth,
    Some(3),
    Some("aes"),
    "NT bandwidth: 10 Gbit/s held, 90 Gbit/s left (aes in region 3)"
)]
#[case(
    Resource::RegionPort,
    Some(3),
    None,
    "region port: 10000000000 cycles/s held, 90000000000 cycles/s left (region 3)"
)]
fn headroom_names_the_resource_its_numbers_and_the_place(
    #[case] resource: Resource,
    #[case] region: Option<u8>,
    #[case] nt: Option<&str>,
    #[case] text: &str,
) {
    let headroom = Headroom {
        resource,
        region: region.map(RegionId),
        nt: nt.map(|nt| NtTypeId::new(nt).expect("a label")),
        held: 10_000_000_000,
        available: 90_000_000_000,
        of_others: false,
    };
    assert_eq!(headroom.to_string(), text);
}

#[rstest]
#[case(0, 250_000_000, None)]
#[case(1, 250_000_000, Some(0))]
#[case(3_999, 250_000_000, Some(999))]
#[case(4_000, 250_000_000, Some(1_000))]
#[case(1_000_000_000, 322_265_625, Some(322_265_625))]
#[case(u64::MAX, 1_000_000_000, Some(u32::MAX))]
fn a_latency_bound_is_as_many_cycles_as_are_within_it(
    #[case] nanos: u64,
    #[case] hz: u64,
    #[case] cycles: Option<u32>,
) {
    let bound = LatencyBound::new(nanos);
    assert_eq!(bound.cycles(hz), cycles);
    assert_eq!(bound.duration(), (nanos > 0).then(|| Duration::from_nanos(nanos)));
    assert_eq!(bound.is_zero(), cycles.is_none(), "{bound}");
}

proptest! {
    /// A packet of so many cycles is late if and only if its time is more than the bound.
    #[test]
    fn cycles_within_a_bound_take_no_longer_than_it(nanos in 1_u64..2_000_000_000, hz in 1_000_u64..1_000_000_000) {
        let cycles = LatencyBound::new(nanos).cycles(hz).expect("a bound");
        let within = |cycles: u64| u128::from(cycles) * 1_000_000_000 <= u128::from(nanos) * u128::from(hz);
        prop_assert!(within(cycles.into()) && !within(u64::from(cycles) + 1));
    }
}
