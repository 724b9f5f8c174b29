use super::*;

fn list(issuer: &str, (from, to): (u64, u64)) -> RevocationStatus {
    let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
    RevocationStatus {
        issuer: issuer.into(),
        number: "1".into(),
        this_update: at(from),
        next_update: at(to),
        is_known_issuer: true,
        superseded: 0,
    }
}

#[test]
fn a_list_is_reported_when_it_expires_and_then_once_a_day() {
    let day = 24 * 3_600;
    let lists = [list("CN=a", (day, 2 * day)), list("CN=b", (day, 100 * day))];
    let mut reports = RevocationReports::default();
    let mut due = |seconds: u64| {
        let due = reports.due(&lists, UNIX_EPOCH + Duration::from_secs(seconds));
        due.len()
    };
    assert_eq!(due(day - 1), 2, "both are from the future");
    assert_eq!(due(day), 0, "both are current");
    assert_eq!(due(2 * day - 1), 0);
    assert_eq!(due(2 * day), 1, "as time passes");
    assert_eq!(due(2 * day + 60), 0, "told already");
    assert_eq!(due(3 * day - 1), 0);
    assert_eq!(due(3 * day), 1, "again after a day");
    assert_eq!(due(2 * day), 1, "the clock was set back");
}

#[test]
fn a_reload_has_lists_reported_again() {
    let lists = [list("CN=a", (1, 2))];
    let now = UNIX_EPOCH + Duration::from_secs(10);
    let mut reports = RevocationReports::default();
    assert_eq!(reports.due(&lists, now).len(), 1);
    reports.forget();
    assert_eq!(reports.due(&lists, now).len(), 1);
    assert_eq!(reports.due(&[], now).len(), 0);
}
