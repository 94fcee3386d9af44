//! The record of an image's lock as a superblock keeps it.

use loligo_ceph::lock_record::{LockRecord, Loss};
use loligo_format::superblock::CORE_RECORD;

/// As the superblock keeps it, which has little room: what can be done without is left out where it is too long.
pub(super) fn encode(record: &LockRecord) -> String {
    let text = |w: &LockRecord| serde_json::to_string(w).expect("names and numbers");
    let mut short = record.clone();
    if text(&short).len() > CORE_RECORD {
        short.version = None;
    }
    while text(&short).len() > CORE_RECORD && short.lost.as_mut().is_some_and(|l| l.why.pop().is_some()) {}
    text(&short)
}

pub(super) fn decode(text: &str) -> Option<LockRecord> {
    serde_json::from_str(text).ok()
}

/// The record to be written down: a loss that was noted in this attach stays, whoever writes after it.
pub(super) fn witness_of(now: LockRecord, lost: Option<Loss>, noted: &str) -> LockRecord {
    LockRecord { lost: decode(noted).and_then(|w| w.lost).or(lost), ..now }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_witness_with_long_names_still_fits_and_is_read_again() {
        let address = "[2001:0db8:85a3:0000:0000:8a2e:0370:7334]:0/4294967295";
        let text = format!(
            r#"{{"client":"client.9223372036854","cookie":"auto 139873468645376","address":"{address}","seq":123456,"w":99999999}}"#
        );
        let held = decode(&text).expect("a witness");
        let lost = LockRecord { lost: Some(Loss::now(&"why ".repeat(40))), ..held.clone() };
        for witness in [held, lost] {
            let kept = encode(&witness);
            assert!(kept.len() <= CORE_RECORD, "{kept}");
            let read = decode(&kept).expect("a witness");
            assert_eq!((read.holder, read.lost.is_some()), (witness.holder, witness.lost.is_some()));
        }
    }

    #[test]
    fn a_loss_stays_noted_whatever_is_noted_later() {
        let now = || decode(r#"{"client":"client.4","cookie":"auto 1","address":"10.0.0.1:0/7","seq":2}"#);
        let now = || now().expect("a witness");
        let first = witness_of(now(), Some(Loss::now("first")), &encode(&now()));
        let later = witness_of(now(), None, &encode(&first));
        assert_eq!(later.lost, first.lost);
        let again = witness_of(now(), Some(Loss::now("again")), &encode(&later));
        assert_eq!(again.lost.map(|l| l.why), Some("first".to_owned()));
        assert_eq!(witness_of(now(), None, &encode(&now())).lost, None);
    }
}
