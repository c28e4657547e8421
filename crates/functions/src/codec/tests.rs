use proptest::prelude::*;

use super::*;

/// The field of 256 elements, the slow way: polynomials modulo x^8 + x^4 + x^3 + x^2 + 1.
fn multiply(mut a: u8, mut b: u8) -> u8 {
    let mut product = 0;
    while b != 0 {
        if b & 1 != 0 {
            product ^= a;
        }
        let carry = a & 0x80 != 0;
        a <<= 1;
        if carry {
            a ^= 0x1d;
        }
        b >>= 1;
    }
    product
}

fn inverse(a: u8) -> u8 {
    (1..=255).find(|&b| multiply(a, b) == 1).unwrap()
}

/// The value at `x` of the polynomial that goes through these points: Lagrange's formula.
fn interpolate(points: &[(u8, u8)], x: u8) -> u8 {
    points.iter().enumerate().fold(0, |sum, (i, &(xi, yi))| {
        let others = points.iter().enumerate().filter(|(j, _)| *j != i);
        let factor = others.fold(1, |factor, (_, &(xj, _))| {
            multiply(factor, multiply(x ^ xj, inverse(xi ^ xj)))
        });
        sum ^ multiply(yi, factor)
    })
}

/// Chunks as points of one polynomial for each byte: chunk `i` is its value at `i`.
fn slow_chunk(known: &[(usize, &[u8])], index: usize) -> Vec<u8> {
    (0..known[0].1.len())
        .map(|at| {
            let points: Vec<(u8, u8)> = known.iter().map(|(i, chunk)| (*i as u8, chunk[at])).collect();
            interpolate(&points, index as u8)
        })
        .collect()
}

fn code(data: u32, parity: u32) -> Code {
    Code::new(data, parity).unwrap()
}

fn pattern(bytes: usize, seed: u64) -> Bytes {
    let mut state = seed | 1;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn chunks_are_those_of_the_slow_code(
        data in 1_u32..13, parity in 0_u32..5, bytes in 1_usize..900, seed: u64, order: u64,
    ) {
        let (code, stripe, codec) = (code(data, parity), pattern(bytes, seed), Rs::default());
        let chunks = encode(&codec, code, &stripe).unwrap();
        prop_assert_eq!(chunks.len(), code.chunks() as usize);
        let joined: Vec<u8> = chunks[..data as usize].iter().flat_map(|chunk| chunk.to_vec()).collect();
        prop_assert_eq!(&joined[..bytes], &stripe[..]);
        prop_assert!(joined[bytes..].iter().all(|byte| *byte == 0));
        let known: Vec<(usize, &[u8])> = chunks[..data as usize].iter().map(Bytes::as_ref).enumerate().collect();
        for (index, chunk) in chunks.iter().enumerate().skip(data as usize) {
            prop_assert_eq!(&chunk[..], &slow_chunk(&known, index)[..], "parity {}", index);
        }
        // Any `data` of them give the others.
        let mut indices: Vec<usize> = (0..chunks.len()).collect();
        indices.sort_by_key(|index| (*index as u64 + 1).wrapping_mul(order | 1).rotate_left(17));
        let (kept, lost) = indices.split_at(data as usize);
        let some: Vec<Option<Bytes>> =
            chunks.iter().enumerate().map(|(i, chunk)| kept.contains(&i).then(|| chunk.clone())).collect();
        if !lost.is_empty() {
            let rebuilt = codec.rebuild(code, some, lost).unwrap();
            for (index, chunk) in lost.iter().zip(rebuilt) {
                prop_assert_eq!(&chunk, &chunks[*index], "chunk {}", index);
            }
        }
    }
}

#[test]
fn the_paper_s_codes_survive_as_many_losses_as_they_have_parity() {
    for (data, parity) in [(10, 1), (10, 2), (4, 2), (5, 1), (20, 4)] {
        let (code, stripe, codec) = (code(data, parity), pattern(100_000, 7), Rs::default());
        let chunks = encode(&codec, code, &stripe).unwrap();
        let mut some: Vec<Option<Bytes>> = chunks.iter().cloned().map(Some).collect();
        let lost: Vec<usize> = (0..parity as usize).collect();
        lost.iter().for_each(|&index| some[index] = None);
        assert_eq!(
            codec.rebuild(code, some.clone(), &lost).unwrap(),
            chunks[..parity as usize]
        );
        some[parity as usize] = None;
        assert_eq!(
            codec.rebuild(code, some, &lost),
            Err(CodecError::Chunks),
            "{code}: one more is too many"
        );
    }
}

#[test]
fn a_range_touches_the_chunks_it_lies_in() {
    let code = code(10, 2);
    let bytes = chunk_bytes(code, 4 << 20);
    assert_eq!(bytes, 419_456);
    for (range, chunks) in [
        (0..1, 0..1),
        (0..4 << 20, 0..10),
        (bytes - 1..bytes + 1, 0..2),
        (bytes..2 * bytes, 1..2),
        (5..5, 0..1),
    ] {
        assert_eq!(touched(code, 4 << 20, &range), chunks, "{range:?}");
    }
}

#[test]
fn bytes_come_from_the_chunks_that_are_here() {
    let (code, stripe, codec) = (code(4, 2), pattern(100_000, 5), Rs::default());
    let all = encode(&codec, code, &stripe).unwrap();
    let each = all[0].len();
    let hashes: Vec<u64> = all.iter().map(|chunk| crate::chunk::chunk_hash(chunk)).collect();
    let chunks = |there: &[usize]| Chunks {
        code,
        stripe_bytes: stripe.len(),
        hashes: hashes.clone().into(),
        have: (0..6)
            .map(|index| there.contains(&index).then(|| all[index].clone()))
            .collect(),
    };
    let here = |chunks: &Chunks| -> Vec<usize> { (0..6).filter(|index| chunks.have[*index].is_some()).collect() };
    for (there, range, missing, kept) in [
        (&[0, 1, 2, 3, 4, 5][..], 0..100_000, &[][..], &[0, 1, 2, 3][..]),
        (&[0, 1, 2, 3, 4, 5], each..each + 1, &[], &[1]),
        (&[0, 1, 2, 4, 5], 0..1, &[], &[0]),
        (&[0, 1, 2, 4, 5], each..100_000, &[3], &[0, 1, 2, 4]),
        (&[2, 3, 4, 5], each - 1..each + 1, &[0, 1], &[2, 3, 4, 5]),
    ] {
        let mut trimmed = chunks(there).trimmed(&range);
        assert!(trimmed.are_sound());
        assert_eq!(
            (&trimmed.missing(&range)[..], &here(&trimmed)[..]),
            (missing, kept),
            "{there:?} {range:?}"
        );
        assert_eq!(trimmed.pieces(&range).is_none(), !missing.is_empty());
        trimmed.compute(&codec, &range).unwrap();
        assert_eq!(trimmed.pieces(&range).unwrap().concat(), stripe[range]);
    }
    assert_eq!(chunks(&[0, 1, 2, 3]).pieces(&(5..5)), None);
    assert_eq!(chunks(&[0, 1, 2, 3]).pieces(&(0..100_001)), None);
    assert_eq!(chunks(&[1, 4, 5]).compute(&codec, &(0..1)), Err(CodecError::Chunks));
    // Parity that is not that of the data.
    let mut wrong = chunks(&[0, 1, 2, 5]);
    wrong.have[5] = Some(all[4].clone());
    assert!(!wrong.are_sound());
    assert_eq!(wrong.compute(&codec, &(0..100_000)), Err(CodecError::Damaged));
}

#[test]
fn parity_fits_its_stripe_or_is_not_used() {
    let (right, stripe, codec) = (code(4, 2), pattern(100_000, 6), Rs::default());
    let parity = Parity::of(&codec, right, &stripe).unwrap();
    assert_eq!(
        parity.clone().join(right, &stripe).unwrap(),
        encode(&codec, right, &stripe).unwrap()
    );
    assert_eq!(parity.clone().join(code(3, 3), &stripe), None);
    assert_eq!(parity.clone().join(right, &stripe.slice(..1000)), None);
    assert_eq!(parity.join(right, &Bytes::new()), None);
    assert!(Parity::of(&codec, right, &Bytes::new()).is_err());
}

#[test]
fn codes_go_by_size() {
    let table = CodeTable::new(vec![(0, code(4, 2)), (100, code(10, 2)), (1000, code(20, 4))]).unwrap();
    for (bytes, functions, expected) in [
        (0, 99, Some((4, 2))),
        (99, 99, Some((4, 2))),
        (100, 99, Some((10, 2))),
        (5000, 99, Some((20, 4))),
        (5000, 23, Some((10, 2))),
        (5000, 6, Some((4, 2))),
        (5000, 5, None),
    ] {
        let expected = expected.map(|(data, parity)| code(data, parity));
        assert_eq!(table.of(bytes, functions), expected, "{bytes} in {functions}");
    }
    assert!(CodeTable::new(vec![(1, code(4, 2))]).is_err());
    assert!(CodeTable::new(vec![(0, code(4, 2)), (0, code(4, 2))]).is_err());
}
