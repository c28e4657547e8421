//! "Did you mean": the known name that takes the fewest changes to reach.

/// The nearest of `known` to `given`, if any is near at all.
pub(super) fn nearest<'a>(given: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    /// A name that shares less than half of its letters is no typing mistake.
    const MIN_LIKENESS: usize = 2;
    let (distance, name) = known.map(|name| (distance(given, name), name)).min()?;
    (distance * MIN_LIKENESS <= name.len().max(given.len())).then_some(name)
}

/// How many letters must be inserted, removed or replaced to make one text the other (Levenshtein 1966).
fn distance(one: &str, other: &str) -> usize {
    // Nobody mistypes for longer than this, and the time grows with the product of both lengths.
    let other: Vec<char> = other.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, letter) in one.chars().take(64).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, other_letter) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *other_letter);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        for (one, other, expected) in [
            ("", "", 0),
            ("memory", "memory", 0),
            ("memroy", "memory", 2),
            ("memor", "memory", 1),
            ("", "abc", 3),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(distance(one, other), expected, "{one} {other}");
            assert_eq!(distance(other, one), expected, "{other} {one}");
        }
    }

    #[test]
    fn only_near_names_are_proposed() {
        let nearest = |given| nearest(given, ["memory", "memcached", "redis"].into_iter());
        assert_eq!(nearest("memroy"), Some("memory"));
        assert_eq!(nearest("memcache"), Some("memcached"));
        assert_eq!(nearest("xyz"), None);
        assert_eq!(nearest(""), None);
    }
}
