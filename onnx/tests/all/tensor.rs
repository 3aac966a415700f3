//! Every way to store a tensor's elements.

use crate::field;
use bytes::Bytes;
use proptest::prelude::*;
use trtc_bundle::DType;
use trtc_onnx::{Error, Message, Packed, SparseTensorProto, Tensor, TensorData, TensorProto, write};

fn int32_data(dtype: DType, dims: &[i64], values: &[i32]) -> TensorProto {
    let int32_data = Packed::from_varints(values.iter().map(|&value| i64::from(value) as u64));
    TensorProto { data_type: Some(dtype.onnx()), dims: dims.to_vec(), int32_data, ..TensorProto::default() }
}

fn bytes_of(tensor: &TensorProto) -> Vec<u8> {
    tensor.to_tensor().unwrap().bytes().unwrap().to_vec()
}

fn fault(tensor: &TensorProto) -> String {
    tensor.to_tensor().unwrap_err().to_string()
}

#[test]
fn packed_and_unpacked_floats_are_the_same() {
    let (one, two) = (1f32.to_le_bytes(), 2f32.to_le_bytes());
    let head = [0x08, 2, 0x10, 1]; // dims: 2, data_type: FLOAT
    let packed = [&head[..], &field(4, &[one, two].concat())].concat();
    // Tag 4 with wire type 5 (32 bits), once an element.
    let unpacked = [&head[..], &[0x25], &one, &[0x25], &two].concat();
    let mixed = [&head[..], &[0x25], &one, &field(4, &two)].concat();
    for wire in [packed, unpacked, mixed] {
        let tensor = TensorProto::decode(Bytes::from(wire)).unwrap();
        assert_eq!(bytes_of(&tensor), [one, two].concat());
        let again = TensorProto::decode(Bytes::from(tensor.encode_to_vec())).unwrap();
        assert_eq!(again, tensor);
    }
}

#[test]
fn packed_fields_are_slices_of_the_message() {
    let wire = Bytes::from([&[0x08, 1, 0x10, 1][..], &field(4, &1f32.to_le_bytes())].concat());
    let tensor = TensorProto::decode(wire.clone()).unwrap().to_tensor().unwrap();
    assert_eq!(tensor.bytes().unwrap().as_ptr(), wire[6..].as_ptr());
}

#[test]
fn unpacked_varints_are_read() {
    // int64_data (7) and int32_data (5) one by one; -1 takes ten bytes.
    let minus_one = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
    let wire = [&[0x08, 2, 0x10, 7, 0x38, 5, 0x38][..], &minus_one].concat();
    let tensor = TensorProto::decode(Bytes::from(wire)).unwrap();
    assert_eq!(bytes_of(&tensor), [5i64.to_le_bytes(), (-1i64).to_le_bytes()].concat());
    let wire = [&[0x08, 2, 0x10, 6, 0x28, 5, 0x28][..], &minus_one].concat();
    let tensor = TensorProto::decode(Bytes::from(wire)).unwrap();
    assert_eq!(bytes_of(&tensor), [5i32.to_le_bytes(), (-1i32).to_le_bytes()].concat());
}

#[test]
fn int32_data_holds_every_narrow_type() {
    type Case<'a> = (DType, &'a [i64], &'a [i32], &'a [u8]);
    let cases: &[Case<'_>] = &[
        (DType::I32, &[1], &[-2], &[0xfe, 0xff, 0xff, 0xff]),
        (DType::I16, &[1], &[-2], &[0xfe, 0xff]),
        (DType::U16, &[1], &[65_534], &[0xfe, 0xff]),
        (DType::I8, &[2], &[-128, 127], &[0x80, 0x7f]),
        (DType::U8, &[2], &[128, 255], &[0x80, 0xff]),
        (DType::Bool, &[3], &[0, 1, 2], &[0, 1, 1]),
        (DType::F16, &[1], &[0x3c00], &[0x00, 0x3c]),
        (DType::Bf16, &[1], &[0x3f80], &[0x80, 0x3f]),
        (DType::F8E4M3, &[1], &[0x38], &[0x38]),
        (DType::F8E8M0, &[1], &[127], &[127]),
        // Two elements in an entry, the first in the low bits: 1, -1, 7.
        (DType::I4, &[3], &[0xf1, 0x07], &[0xf1, 0x07]),
        (DType::F4E2M1, &[2], &[0x21], &[0x21]),
        // Four elements in an entry: 0, 1, 2, 3, then 1.
        (DType::U2, &[5], &[0b11_10_01_00, 1], &[0xe4, 1]),
        // One 6-bit element an entry; packed as onnx.proto describes: byte0 = x0 | (x1 & 3) << 6, and so on.
        (DType::F6E2M3, &[4], &[1, 2, 3, 4], &[0x81, 0x30, 0x10]),
        (DType::F6E3M2, &[1], &[0x3f], &[0x3f]),
        (DType::F6E2M3, &[5], &[1, 2, 3, 4, 5], &[0x81, 0x30, 0x10, 0x05]),
    ];
    for (dtype, dims, values, expected) in cases {
        assert_eq!(bytes_of(&int32_data(*dtype, dims, values)), *expected, "{dtype}");
    }
}

#[test]
fn the_other_typed_fields() {
    let of = |dtype: DType, dims: &[i64]| TensorProto {
        data_type: Some(dtype.onnx()),
        dims: dims.to_vec(),
        ..TensorProto::default()
    };
    let wide = || Packed::from_varints([1, u64::MAX]);
    let u64s = TensorProto { uint64_data: wide(), ..of(DType::U64, &[2]) };
    assert_eq!(bytes_of(&u64s), [1u64.to_le_bytes(), u64::MAX.to_le_bytes()].concat());
    let u32s = TensorProto { uint64_data: Packed::from_varints([1, 4_294_967_295]), ..of(DType::U32, &[2]) };
    assert_eq!(bytes_of(&u32s), [1u32.to_le_bytes(), u32::MAX.to_le_bytes()].concat());
    let i64s = TensorProto { int64_data: wide(), ..of(DType::I64, &[2]) };
    assert_eq!(bytes_of(&i64s), [1i64.to_le_bytes(), (-1i64).to_le_bytes()].concat());
    let pair = [1f64.to_le_bytes(), 2f64.to_le_bytes()].concat();
    let double_data = Packed::fixed(pair.clone().into());
    assert_eq!(bytes_of(&TensorProto { double_data: double_data.clone(), ..of(DType::F64, &[2]) }), pair);
    assert_eq!(bytes_of(&TensorProto { double_data, ..of(DType::C128, &[1]) }), pair);
    let pair = [1f32.to_le_bytes(), 2f32.to_le_bytes()].concat();
    let float_data = Packed::fixed(pair.clone().into());
    assert_eq!(bytes_of(&TensorProto { float_data, ..of(DType::C64, &[1]) }), pair);
    let text = vec![Bytes::from_static(b"a"), Bytes::new()];
    let strings = TensorProto::strings("s", &[2], text.clone()).to_tensor().unwrap();
    assert_eq!(strings.data, TensorData::Strings(text));
}

#[test]
fn an_empty_raw_data_beside_a_typed_field_does_not_count() {
    let tensor = TensorProto { raw_data: Some(Bytes::new()), ..int32_data(DType::I32, &[1], &[7]) };
    assert_eq!(bytes_of(&tensor), 7i32.to_le_bytes());
    assert!(bytes_of(&TensorProto::raw("e", DType::F32, &[0, 3], Bytes::new())).is_empty());
}

#[test]
fn data_that_does_not_fit_is_named_with_its_numbers() {
    let short = TensorProto::raw("w", DType::F32, &[2, 3], vec![0; 20]);
    assert_eq!(fault(&short), "tensor `w`: f32 [2, 3] needs 24 bytes, raw_data has 20");
    let entries = int32_data(DType::I32, &[1_000_000_000_000], &[1, 2]);
    assert_eq!(
        fault(&entries),
        "tensor ``: i32 [1000000000000] needs 1000000000000 entries, int32_data has 2"
    );
    for (dims, word) in [
        (vec![2, -1], "negative"),
        (vec![i64::MAX, 3], "more elements"),
        (vec![i64::MAX / 4], "more elements"),
    ] {
        let text = fault(&TensorProto::raw("w", DType::I64, &dims, Bytes::new()));
        assert!(text.contains(word), "{text}");
    }
    let number = |data_type| fault(&TensorProto { data_type, ..TensorProto::default() });
    assert!(number(None).contains("no element type"));
    assert!(number(Some(99)).contains("99"));
    let strings = TensorProto::raw("s", DType::Str, &[1], vec![1]);
    assert!(fault(&strings).contains("string_data"));
    let cut = TensorProto {
        int64_data: Packed::fixed(Bytes::from_static(&[0x80])),
        ..int32_data(DType::I64, &[1], &[])
    };
    assert!(fault(&cut).contains("int64_data is damaged"));
}

#[test]
fn sparse_tensors_become_dense() {
    let sparse = |indices: TensorProto| SparseTensorProto {
        values: Some(write::tensor_f32("s", &[2], &[5.0, 7.0])),
        indices: Some(indices),
        dims: vec![2, 3],
    };
    let expected: Vec<u8> =
        [0f32, 5.0, 0.0, 0.0, 0.0, 7.0].iter().flat_map(|value| value.to_le_bytes()).collect();
    let linear = sparse(write::tensor_i64("", &[2], &[1, 5]));
    let coordinates = sparse(write::tensor_i64("", &[2, 2], &[0, 1, 1, 2]));
    for form in [linear, coordinates] {
        let dense = form.to_dense(TensorProto::to_tensor).unwrap();
        assert_eq!((dense.dtype, dense.dims.as_slice()), (DType::F32, &[2i64, 3][..]));
        assert_eq!(dense.bytes().unwrap()[..], expected[..]);
    }
    for (indices, word) in [
        (write::tensor_i64("", &[2], &[5, 1]), "ascend"),
        (write::tensor_i64("", &[2], &[1, 6]), "does not exist"),
        (write::tensor_i64("", &[2], &[-1, 6]), "outside"),
        (write::tensor_i64("", &[2, 2], &[0, 1, 2, 0]), "outside"),
        (write::tensor_i64("", &[3], &[0, 1, 2]), "does not fit"),
        (write::tensor_i32("", &[2], &[0, 1]), "i64"),
    ] {
        let error = sparse(indices).to_dense(TensorProto::to_tensor).unwrap_err();
        assert!(matches!(error, Error::Tensor { .. }) && error.to_string().contains(word), "{error}");
    }
}

#[test]
fn narrow_sparse_elements_keep_their_neighbours() {
    // Elements 1 and 3 of five: the values 0xa and 0x5.
    let sparse = SparseTensorProto {
        values: Some(TensorProto::raw("n", DType::U4, &[2], vec![0x5a])),
        indices: Some(write::tensor_i64("", &[2], &[1, 3])),
        dims: vec![5],
    };
    let dense = sparse.to_dense(TensorProto::to_tensor).unwrap();
    assert_eq!(dense.bytes().unwrap()[..], [0xa0, 0x50, 0x00]);
}

proptest! {
    #[test]
    fn tensors_survive_the_wire(
        dims in prop::collection::vec(0i64..4, 0..4),
        number in prop::sample::select(DType::ALL.iter().filter(|dtype| dtype.bits() > 0).collect::<Vec<_>>()),
        seed in any::<u8>(),
    ) {
        let count = dims.iter().product::<i64>() as usize;
        let bytes: Vec<u8> = (0..number.bytes_for(count).unwrap()).map(|k| seed.wrapping_add(k as u8)).collect();
        let tensor = Tensor { dtype: *number, dims, data: TensorData::Bytes(bytes.into()) };
        let wire = tensor.to_proto("t").encode_to_vec();
        let read = TensorProto::decode(Bytes::from(wire)).unwrap();
        prop_assert_eq!(read.name(), "t");
        prop_assert_eq!(read.to_tensor().unwrap(), tensor);
    }

    #[test]
    fn packed_fields_survive_the_wire(values in prop::collection::vec(any::<i64>(), 0..20)) {
        let int64_data = Packed::from_varints(values.iter().map(|&value| value as u64));
        let dims = vec![values.len() as i64];
        let tensor = TensorProto { data_type: Some(7), dims, int64_data, ..TensorProto::default() };
        let wire = tensor.encode_to_vec();
        prop_assert_eq!(wire.len(), tensor.encoded_len());
        let read = TensorProto::decode(Bytes::from(wire)).unwrap();
        let expected: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        prop_assert_eq!(bytes_of(&read), expected);
    }

    #[test]
    fn random_tensors_never_panic(wire in prop::collection::vec(any::<u8>(), 0..64)) {
        if let Ok(tensor) = TensorProto::decode(Bytes::from(wire)) {
            let _ = tensor.to_tensor();
        }
    }
}
