//! Quantities of Kubernetes, as limits of memory are written: `128Mi`, `1G`, `1e9`, `0.5Gi`, `128974848000m`.

/// The suffixes that are not one letter of the powers of ten, and what they multiply by.
const BINARY: [(&str, u64); 6] = [
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
    ("Pi", 1 << 50),
    ("Ei", 1 << 60),
];
const DECIMAL: [(&str, u64); 6] = [
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("P", 1_000_000_000_000_000),
    ("E", 1_000_000_000_000_000_000),
];
/// Parts of one, down to a billionth.
const PARTS: [(&str, f64); 3] = [("m", 1e-3), ("u", 1e-6), ("n", 1e-9)];

/// The bytes of a quantity, rounded down; nothing if it is none.
pub(super) fn bytes(text: &str) -> Option<u64> {
    let factors = BINARY.into_iter().chain(DECIMAL);
    let mut factors = factors.map(|(suffix, factor)| (suffix, factor as f64)).chain(PARTS);
    let (number, factor) = factors
        .find_map(|(suffix, factor)| Some((text.strip_suffix(suffix)?, factor)))
        .unwrap_or((text, 1.0));
    let is_plain = number
        .bytes()
        .all(|byte| byte.is_ascii_digit() || b".eE+-".contains(&byte));
    let number: f64 = number.parse().ok().filter(|_| is_plain)?;
    let bytes = number * factor;
    (bytes >= 0.0 && bytes <= u64::MAX as f64).then_some(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read() {
        for (text, expected) in [
            ("128Mi", Some(128 << 20)),
            ("1.5Gi", Some(3 << 29)),
            ("64Ki", Some(64 << 10)),
            ("1G", Some(1_000_000_000)),
            ("500M", Some(500_000_000)),
            ("2k", Some(2_000)),
            ("134217728", Some(128 << 20)),
            ("1e9", Some(1_000_000_000)),
            ("134217728000m", Some(128 << 20)),
            ("0", Some(0)),
            ("", None),
            ("Mi", None),
            ("-1Mi", None),
            ("much", None),
            ("inf", None),
            ("NaN", None),
            ("1e99Gi", None),
        ] {
            assert_eq!(bytes(text), expected, "{text:?}");
        }
    }
}
