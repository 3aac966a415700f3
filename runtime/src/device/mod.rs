//! GPUs: asked for only when somebody wants one. Nothing here makes a CUDA context, and the driver is loaded, not linked.
#![allow(unsafe_code)]

use std::sync::OnceLock;

/// One GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gpu {
    /// Its number for the driver: the N of `cuda:N`.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its compute capability, as in [`trtc_bundle::Target::sms`]: 89 for 8.9.
    pub sm: u16,
    /// Its memory in bytes.
    pub memory_bytes: u64,
}

/// The GPUs of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Devices {
    /// CUDA version of the driver, (major, minor).
    pub driver: (u16, u16),
    /// GPUs, by their number. Never empty.
    pub gpus: Vec<Gpu>,
}

/// Why there is no GPU to use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoDevice {
    /// Left out when this program was built.
    #[error("this program was built without CUDA (feature `cuda`)")]
    NotBuilt,
    /// libcuda is missing.
    #[error("no NVIDIA driver: libcuda.so.1 was not found")]
    NoDriver,
    /// The driver answers with an error.
    #[error("the NVIDIA driver does not start: {0}")]
    Driver(String),
    /// The driver knows no GPU.
    #[error("the NVIDIA driver finds no GPU")]
    NoGpu,
    /// There is no GPU of that number.
    #[error("there is no GPU {index}; this machine has {count}")]
    Index {
        /// The number asked for.
        index: u32,
        /// How many there are.
        count: usize,
    },
}

impl Devices {
    /// What the driver finds. Asked once a process.
    ///
    /// # Errors
    /// [`NoDevice`]: why there is none.
    pub fn probe() -> Result<&'static Devices, NoDevice> {
        static FOUND: OnceLock<Result<Devices, NoDevice>> = OnceLock::new();
        FOUND.get_or_init(driver::probe).as_ref().map_err(Clone::clone)
    }

    /// The GPU of that number.
    ///
    /// # Errors
    /// [`NoDevice::Index`].
    pub fn gpu(&self, index: u32) -> Result<&Gpu, NoDevice> {
        let gpu = self.gpus.iter().find(|gpu| gpu.index == index);
        gpu.ok_or(NoDevice::Index { index, count: self.gpus.len() })
    }
}

#[cfg(not(feature = "cuda"))]
mod driver {
    use super::{Devices, NoDevice};

    pub fn probe() -> Result<Devices, NoDevice> {
        Err(NoDevice::NotBuilt)
    }
}

#[cfg(feature = "cuda")]
mod driver {
    use super::{Devices, Gpu, NoDevice};
    use cudarc::driver::{DriverError, result, sys};

    pub fn probe() -> Result<Devices, NoDevice> {
        // SAFETY: opens and closes the library; its initialisers are those of the installed driver. Without this question
        // the first call would panic on a machine that has no driver.
        if !unsafe { sys::is_culib_present() } {
            return Err(NoDevice::NoDriver);
        }
        let gpus = gpus().map_err(|error| match error.0 {
            sys::CUresult::CUDA_ERROR_NO_DEVICE => NoDevice::NoGpu,
            _ => NoDevice::Driver(error.to_string()),
        })?;
        if gpus.1.is_empty() {
            return Err(NoDevice::NoGpu);
        }
        Ok(Devices { driver: gpus.0, gpus: gpus.1 })
    }

    fn gpus() -> Result<((u16, u16), Vec<Gpu>), DriverError> {
        use sys::CUdevice_attribute::{
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as MAJOR,
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as MINOR,
        };
        result::init()?;
        let mut version = 0;
        // SAFETY: writes one integer; needs no context.
        unsafe { sys::cuDriverGetVersion(&mut version) }.result()?;
        let number = |value: i32| u16::try_from(value).unwrap_or(0);
        let driver = (number(version / 1000), number(version % 1000 / 10));
        let count = result::device::get_count()?;
        let gpu = |index: i32| {
            let device = result::device::get(index)?;
            // SAFETY: a device that the driver gave; these questions need no context.
            let (major, minor, memory) = unsafe {
                (
                    result::device::get_attribute(device, MAJOR)?,
                    result::device::get_attribute(device, MINOR)?,
                    result::device::total_mem(device)?,
                )
            };
            Ok(Gpu {
                index: index.unsigned_abs(),
                name: result::device::get_name(device)?,
                sm: number(major * 10 + minor),
                memory_bytes: memory as u64,
            })
        };
        Ok((driver, (0..count).map(gpu).collect::<Result<_, DriverError>>()?))
    }
}

#[cfg(test)]
mod tests {
    use super::{Devices, Gpu, NoDevice};

    #[test]
    fn a_probe_answers_the_same_twice_and_never_panics() {
        assert_eq!(Devices::probe().is_ok(), Devices::probe().is_ok());
        if let Err(error) = Devices::probe() {
            assert!(!error.to_string().is_empty());
        }
    }

    #[test]
    fn a_gpu_that_is_not_there_is_named() {
        let gpu = Gpu { index: 0, name: "GPU".into(), sm: 89, memory_bytes: 1 };
        let devices = Devices { driver: (13, 0), gpus: vec![gpu.clone()] };
        assert_eq!(devices.gpu(0), Ok(&gpu));
        assert_eq!(devices.gpu(3), Err(NoDevice::Index { index: 3, count: 1 }));
    }
}
