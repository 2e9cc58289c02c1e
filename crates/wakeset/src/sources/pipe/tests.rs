extern crate std;
use crate::error::Error;
use crate::sources::pipe::chain::Piece;
use crate::sources::pipe::handle::{Pipe, PipeCapacity};
use crate::sources::pipe::nodes::{LONGEST_MESSAGE, NODES};
use crate::sources::pipe::word::{PAGE, PIPE_CAPACITY};
use crate::sync::Ordering;
use std::vec::Vec;

fn pipe(capacity: PipeCapacity) -> (Pipe, u32) {
    let pipe = Pipe::new();
    let generation = pipe.next_generation();
    pipe.unseal(generation, capacity);
    (pipe, generation)
}

fn read(pipe: &Pipe, generation: u32, most: usize) -> Result<(Vec<u8>, bool), Error> {
    let mut bytes = Vec::new();
    let taken = pipe.try_read(generation, most, |part| {
        bytes.extend_from_slice(part);
        true
    })?;
    assert_eq!(taken.n, bytes.len());
    Ok((bytes, taken.made_room))
}

fn sealed(pipe: &Pipe, generation: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    assert!(pipe.seal(generation, |piece| match piece {
        Piece::Run(byte, n) => bytes.extend((0..n).map(|_| byte)),
        Piece::Bytes { bytes: more, .. } => bytes.extend_from_slice(more),
    }));
    bytes
}

const FEW: PipeCapacity = PipeCapacity::Messages { most: 5, writable: 2, telling: 1 };

/// What a queue of bytes would do, driven by a simple generator.
#[test]
fn bytes_come_out_in_order() {
    let mut seed = 1_u64;
    let mut random = |n: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % n
    };
    let (pipe, mut generation) = pipe(PipeCapacity::Pages);
    let mut model = std::collections::VecDeque::new();
    let mut next = 0_u8;
    for _ in 0..200_000 {
        match random(20) {
            0..9 => {
                let len = [1, 1, 1, 2, 8, 57, 300][random(7) as usize];
                next = next.wrapping_add(random(2) as u8);
                let bytes: Vec<u8> =
                    (0..len).map(|i| next.wrapping_add(random(3) as u8 * (i as u8 & 1))).collect();
                match pipe.try_write(generation, &bytes) {
                    Ok(()) => model.extend(bytes),
                    Err(Error::Unfit | Error::WouldBlock) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            9..19 => {
                let most = 1 + random(130) as usize;
                let expected: Vec<u8> = model.iter().copied().take(most).collect();
                match read(&pipe, generation, most) {
                    Ok((bytes, _)) => assert_eq!(bytes, expected),
                    Err(error) => assert_eq!((error, expected.len()), (Error::WouldBlock, 0)),
                }
                model.drain(..expected.len());
            }
            _ if random(50) == 0 => {
                assert_eq!(sealed(&pipe, generation), model.drain(..).collect::<Vec<u8>>());
                assert_eq!(pipe.try_write(generation, b"x"), Err(Error::Sealed));
                generation = pipe.next_generation();
                pipe.unseal(generation, PipeCapacity::Pages);
                assert_eq!(
                    pipe.try_write(generation.wrapping_sub(1), b"x"),
                    Err(Error::Sealed),
                    "an earlier generation"
                );
            }
            _ => {}
        }
        assert_eq!(pipe.state(generation).map(|state| state.len as usize), Some(model.len()));
    }
    // Every node has come back.
    let _ = sealed(&pipe, generation);
    assert!(pipe.nodes().unwrap().taken.iter().all(|taken| taken.load(Ordering::Relaxed) == 0));
}

#[test]
fn holds_sixteen_pages_of_single_bytes() {
    let (pipe, generation) = pipe(PipeCapacity::Pages);
    let writable = |pipe: &Pipe| pipe.state(generation).unwrap().writable;
    for i in 0..PIPE_CAPACITY {
        assert_eq!(writable(&pipe), i <= PIPE_CAPACITY - PAGE, "{i}");
        assert_eq!(pipe.try_write(generation, b"x"), Ok(()));
    }
    assert_eq!(pipe.try_write(generation, b"x"), Err(Error::WouldBlock));
    assert_eq!(pipe.try_write(generation, b"y"), Err(Error::WouldBlock));
    assert_eq!(
        read(&pipe, generation, 4095).map(|(bytes, room)| (bytes.len(), room)),
        Ok((4095, false))
    );
    assert_eq!(pipe.try_write(generation, b"x"), Err(Error::WouldBlock));
    assert_eq!(read(&pipe, generation, 1).map(|(bytes, room)| (bytes.len(), room)), Ok((1, true)));
    assert_eq!(pipe.try_write(generation, &[b'x'; 4096]), Ok(()));
    assert_eq!(pipe.try_write(generation, b"x"), Err(Error::WouldBlock));
    let (bytes, room) = read(&pipe, generation, usize::MAX).unwrap();
    assert_eq!((bytes.len(), room), (PIPE_CAPACITY as usize, true));
}

/// A write that leaves a gap at the end of a page is not held here.
#[test]
fn what_would_leave_a_gap_is_unfit() {
    let (pipe, generation) = pipe(PipeCapacity::Pages);
    for _ in 0..40 {
        assert_eq!(pipe.try_write(generation, &[7; 100]), Ok(()));
    }
    assert_eq!(pipe.try_write(generation, &[7; 100]), Err(Error::Unfit));
    assert_eq!(pipe.try_write(generation, &[7; 96]), Ok(()));
    assert_eq!(pipe.try_write(generation, &[7; 100]), Ok(()));
    assert_eq!(pipe.try_write(generation, &[7; 4097]), Err(Error::Unfit));
}

#[test]
fn messages_count_until_their_last_byte_is_read() {
    let (pipe, generation) = pipe(FEW);
    let state = |pipe: &Pipe| {
        pipe.state(generation).map(|state| (state.len, state.offset, state.writable)).unwrap()
    };
    assert_eq!(pipe.try_write(generation, b"a"), Ok(()));
    assert_eq!(pipe.try_write(generation, b"a"), Ok(()));
    assert_eq!(pipe.try_write(generation, b"bcd"), Ok(()));
    assert_eq!(state(&pipe), (5, 3, false));
    assert_eq!(pipe.try_write(generation, b"e"), Ok(()));
    assert_eq!(pipe.try_write(generation, b"e"), Ok(()));
    assert_eq!(pipe.try_write(generation, b"e"), Err(Error::WouldBlock));
    assert_eq!(read(&pipe, generation, 3), Ok((b"aab".to_vec(), false)));
    assert_eq!(state(&pipe), (4, 3, false));
    assert_eq!(read(&pipe, generation, 1), Ok((b"c".to_vec(), false)));
    assert_eq!(state(&pipe), (3, 3, false));
    assert_eq!(read(&pipe, generation, 1), Ok((b"d".to_vec(), false)));
    assert_eq!(state(&pipe), (2, 2, true));
    assert_eq!(read(&pipe, generation, 1), Ok((b"e".to_vec(), true)));
    assert_eq!(read(&pipe, generation, 9), Ok((b"e".to_vec(), true)));
}

/// What a seal says of a message that is half read, so that it can be made again elsewhere.
#[test]
fn a_seal_tells_the_messages_apart() {
    let (pipe, generation) = pipe(FEW);
    for message in [&b"abcd"[..], b"e", b"f"] {
        pipe.try_write(generation, message).unwrap();
    }
    assert_eq!(read(&pipe, generation, 2), Ok((b"ab".to_vec(), false)));
    let mut pieces = Vec::new();
    pipe.seal(generation, |piece| match piece {
        Piece::Run(byte, n) => panic!("{n} of {byte}"),
        Piece::Bytes { bytes, read, .. } => pieces.push((bytes.to_vec(), read)),
    });
    assert_eq!(pieces, [(b"cd".to_vec(), 2), (b"e".to_vec(), 0), (b"f".to_vec(), 0)]);
    assert_eq!(
        pipe.state(generation).map(|state| (state.len, state.offset, state.sealed)),
        Some((4, 3, true))
    );
}

/// A message of several nodes counts until the last of them has been read, and a seal joins them.
#[test]
fn a_long_message_is_one() {
    let (pipe, generation) = pipe(FEW);
    let message: Vec<u8> = (0..LONGEST_MESSAGE as u8).collect();
    pipe.try_write(generation, b"x").unwrap();
    pipe.try_write(generation, &message).unwrap();
    assert_eq!(read(&pipe, generation, 2), Ok((b"x\0".to_vec(), true)));
    assert_eq!(pipe.state(generation).map(|state| state.offset), Some(1));
    let most = LONGEST_MESSAGE - 61;
    assert_eq!(read(&pipe, generation, most), Ok((message[1..=most].to_vec(), false)));
    pipe.try_write(generation, b"yz").unwrap();
    let mut pieces = Vec::new();
    pipe.seal(generation, |piece| match piece {
        Piece::Run(byte, n) => panic!("{n} of {byte}"),
        Piece::Bytes { bytes, read, ends } => pieces.push((bytes.to_vec(), read, ends)),
    });
    let (last, before) = (pieces.len() - 2, pieces[0].1);
    assert_eq!((before, pieces[last + 1].clone()), (most + 1, (b"yz".to_vec(), 0, true)));
    let parts = &pieces[..=last];
    assert!(parts.iter().skip(1).all(|part| part.1 == 0));
    assert!(parts.iter().enumerate().all(|(i, part)| part.2 == (i == last)));
    let left: Vec<u8> = parts.iter().flat_map(|part| part.0.clone()).collect();
    assert_eq!(left, message[most + 1..]);
}

/// A read whose memory is not there takes nothing.
#[test]
fn a_refused_read_takes_nothing() {
    let (pipe, generation) = pipe(PipeCapacity::Pages);
    pipe.try_write(generation, b"abc").unwrap();
    assert_eq!(pipe.try_read(generation, 2, |_| false), Err(Error::Unfit));
    assert_eq!(read(&pipe, generation, 9), Ok((b"abc".to_vec(), false)));
}

/// A pipe whose memory was all touched at once cost four pages more.
#[test]
fn only_nodes_that_were_needed_are_made() {
    let (pipe, generation) = pipe(PipeCapacity::Pages);
    let made = |pipe: &Pipe| -> u32 {
        pipe.nodes()
            .unwrap()
            .made
            .iter()
            .map(|made| made.load(Ordering::Relaxed).count_ones())
            .sum()
    };
    assert_eq!(made(&pipe), 0);
    for _ in 0..2 * NODES {
        assert_eq!(pipe.try_write(generation, b"ab"), Ok(()));
        assert_eq!(pipe.try_write(generation, b"cd"), Ok(()));
        assert_eq!(read(&pipe, generation, 9), Ok((b"abcd".to_vec(), false)));
        assert_eq!(made(&pipe), 2);
    }
}

#[test]
fn without_nodes_left_a_write_is_unfit() {
    let (pipe, generation) = pipe(PipeCapacity::Pages);
    let mut written = 0;
    while pipe.try_write(generation, &[0, 1]).is_ok() {
        written += 1;
    }
    assert_eq!(written, NODES);
    assert_eq!(read(&pipe, generation, 2), Ok(([0, 1].to_vec(), false)));
    assert_eq!(pipe.try_write(generation, &[0, 1]), Ok(()));
    assert_eq!(pipe.try_write(generation, &[0; LONGEST_MESSAGE + 1]), Err(Error::Unfit));
}

/// The answer of a socket whose pair is closed by then says nothing of the next one.
#[test]
fn a_late_answer_says_nothing_of_the_next_generation() {
    let (pipe, generation) = pipe(PipeCapacity::Unasked);
    assert_eq!(pipe.try_write(generation, b"a"), Err(Error::Unfit));
    assert!(pipe.is_unasked(generation) && pipe.state(generation).unwrap().writable);
    pipe.seal(generation, |_| {});
    let next = pipe.next_generation();
    pipe.unseal(next, PipeCapacity::Unasked);
    pipe.set_capacity(generation, FEW);
    assert!(pipe.is_unasked(next));
    assert_eq!(pipe.try_write(next, b"a"), Err(Error::Unfit));
    pipe.set_capacity(next, PipeCapacity::Messages { most: 1, writable: 0, telling: 0 });
    // Of no effect on what is known.
    pipe.set_capacity(next, FEW);
    assert_eq!(pipe.try_write(next, b"a"), Ok(()));
    assert_eq!(pipe.try_write(next, b"a"), Err(Error::WouldBlock));
    assert!(!pipe.state(next).unwrap().writable);
}
