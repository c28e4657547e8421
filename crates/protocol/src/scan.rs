//! Finds the end of a word eight bytes at a time.
//!
//! Invariant: the answer is the first byte at or after `from` that cannot be part of a memcached key: a control
//! character, a space or DEL. It is the input's length if there is none.

/// A byte repeated in all eight places of a word.
const fn repeated(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

/// A bit at the top of every byte that is below 0x21 or is 0x7f. It is exact for the lowest such byte, the only one
/// that is looked at (a borrow can only mark bytes above it).
#[inline]
const fn ends(word: u64) -> u64 {
    let below = word.wrapping_sub(repeated(0x21));
    let delete = (word ^ repeated(0x7f)).wrapping_sub(repeated(1));
    (below | delete) & !word & repeated(0x80)
}

/// The end of the word that begins at `from`: see the module's invariant.
#[inline]
pub(crate) fn word_end(input: &[u8], from: usize) -> usize {
    let mut at = from;
    while let Some(chunk) = input.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        let found = ends(u64::from_le_bytes(*chunk));
        if found != 0 {
            return at + (found.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    while let Some(&byte) = input.get(at) {
        if byte <= b' ' || byte == 0x7f {
            break;
        }
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_byte_that_ends_a_word_is_found_at_every_place() {
        for length in 0..40 {
            for at in 0..length {
                for end in 0..=255_u8 {
                    let mut text = vec![b'k'; length];
                    text[at] = end;
                    // A second end behind the first one must not be taken for it.
                    if at + 2 < length {
                        text[at + 2] = b' ';
                    }
                    let slow = |from: usize| {
                        let rest = text[from..].iter();
                        from + rest.take_while(|b| **b > b' ' && **b != 0x7f).count()
                    };
                    for from in [0, at / 2, at] {
                        assert_eq!(word_end(&text, from), slow(from), "{text:?} from {from}");
                    }
                }
            }
        }
        assert_eq!(word_end(b"", 0), 0);
    }
}
