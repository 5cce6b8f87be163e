# SPDX-License-Identifier: Apache-2.0
# Written by tools/packages from third_party/packages.json

set(CHORALE_ALL_COMPONENTS chorale tcp mpi images libtorch cuda nccl)
set(CHORALE_PKG_CONFIG chorale chorale-images chorale-mpi chorale-tcp)

set(CHORALE_COMPONENT_chorale_PACKAGES gsl nlohmann_json onednn zlib)
set(CHORALE_COMPONENT_chorale_OPTIONS -pthread)
set(CHORALE_COMPONENT_chorale_LIBRARIES gomp)
set(CHORALE_COMPONENT_chorale_DEFINES CHORALE_COMPONENTS)
set(CHORALE_COMPONENT_tcp_PACKAGES boost openssl)
set(CHORALE_COMPONENT_tcp_NEEDS chorale)
set(CHORALE_COMPONENT_tcp_DEFINES CHORALE_COMPONENT_TCP BOOST_ERROR_CODE_HEADER_ONLY BOOST_SYSTEM_NO_DEPRECATED)
set(CHORALE_COMPONENT_mpi_PACKAGES mpi)
set(CHORALE_COMPONENT_mpi_NEEDS chorale)
set(CHORALE_COMPONENT_mpi_DEFINES CHORALE_COMPONENT_MPI OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
set(CHORALE_COMPONENT_images_PACKAGES libjpeg libpng)
set(CHORALE_COMPONENT_images_NEEDS chorale)
set(CHORALE_COMPONENT_images_DEFINES CHORALE_COMPONENT_IMAGES)
set(CHORALE_COMPONENT_libtorch_PACKAGES libtorch)
set(CHORALE_COMPONENT_libtorch_NEEDS chorale)
set(CHORALE_COMPONENT_libtorch_DEFINES CHORALE_COMPONENT_LIBTORCH)
set(CHORALE_COMPONENT_cuda_PACKAGES cuda)
set(CHORALE_COMPONENT_cuda_NEEDS chorale)
set(CHORALE_COMPONENT_cuda_DEFINES CHORALE_COMPONENT_CUDA)
set(CHORALE_COMPONENT_nccl_PACKAGES nccl)
set(CHORALE_COMPONENT_nccl_NEEDS cuda chorale)
set(CHORALE_COMPONENT_nccl_DEFINES CHORALE_COMPONENT_NCCL)

set(CHORALE_PACKAGE_gsl_HEADER gsl/util)
set(CHORALE_PACKAGE_gsl_TARGET Microsoft.GSL::GSL)
set(CHORALE_PACKAGE_gsl_SENTENCE
    "chorale: <gsl/util> or its library is missing (checks). Try: apt-get install libmsgsl-dev (Debian), dnf install guidelines-support-library-devel (Fedora), brew install cpp-gsl (Homebrew) or vcpkg install ms-gsl.")

set(CHORALE_PACKAGE_nlohmann_json_HEADER nlohmann/json.hpp)
set(CHORALE_PACKAGE_nlohmann_json_TARGET nlohmann_json::nlohmann_json)
set(CHORALE_PACKAGE_nlohmann_json_SENTENCE
    "chorale: <nlohmann/json.hpp> or its library is missing (JSON). Try: apt-get install nlohmann-json3-dev (Debian), dnf install json-devel (Fedora), brew install nlohmann-json (Homebrew) or vcpkg install nlohmann-json.")

set(CHORALE_PACKAGE_onednn_HEADER dnnl.hpp)
set(CHORALE_PACKAGE_onednn_LIBRARIES dnnl)
set(CHORALE_PACKAGE_onednn_TARGET DNNL::dnnl)
set(CHORALE_PACKAGE_onednn_FOLDER CHORALE_ONEDNN)
set(CHORALE_PACKAGE_onednn_SENTENCE
    "chorale: <dnnl.hpp> or its library is missing (kernels on a CPU). Try: apt-get install libdnnl-dev (Debian), dnf install onednn-devel (Fedora), brew install onednn (Homebrew) or vcpkg install onednn, or name its folder in the environment variable CHORALE_ONEDNN.")

set(CHORALE_PACKAGE_zlib_HEADER zlib.h)
set(CHORALE_PACKAGE_zlib_LIBRARIES z)
set(CHORALE_PACKAGE_zlib_TARGET ZLIB::ZLIB)
set(CHORALE_PACKAGE_zlib_SENTENCE
    "chorale: <zlib.h> or its library is missing (compressed data sets). Try: apt-get install zlib1g-dev (Debian), dnf install zlib-devel (Fedora), brew install zlib (Homebrew) or vcpkg install zlib.")

set(CHORALE_PACKAGE_boost_HEADER boost/asio.hpp)
set(CHORALE_PACKAGE_boost_TARGET Boost::headers)
set(CHORALE_PACKAGE_boost_SENTENCE
    "chorale: <boost/asio.hpp> or its library is missing (Asio: sockets of the TCP transport). Try: apt-get install libboost1.81-dev (Debian), dnf install boost-devel (Fedora), brew install boost (Homebrew) or vcpkg install boost-asio.")

set(CHORALE_PACKAGE_openssl_HEADER openssl/evp.h)
set(CHORALE_PACKAGE_openssl_LIBRARIES crypto)
set(CHORALE_PACKAGE_openssl_TARGET OpenSSL::Crypto)
set(CHORALE_PACKAGE_openssl_SENTENCE
    "chorale: <openssl/evp.h> or its library is missing (the handshake, and sealed frames). Try: apt-get install libssl-dev (Debian), dnf install openssl-devel (Fedora), brew install openssl@3 (Homebrew) or vcpkg install openssl.")

set(CHORALE_PACKAGE_mpi_HEADER mpi.h)
set(CHORALE_PACKAGE_mpi_SENTENCE
    "chorale: <mpi.h> or its library is missing (ranks under mpirun; a peer to compare with). Try: apt-get install libopenmpi-dev (Debian), dnf install openmpi-devel (Fedora), brew install open-mpi (Homebrew) or vcpkg install openmpi.")

set(CHORALE_PACKAGE_libjpeg_HEADER jpeglib.h)
set(CHORALE_PACKAGE_libjpeg_LIBRARIES jpeg)
set(CHORALE_PACKAGE_libjpeg_TARGET JPEG::JPEG)
set(CHORALE_PACKAGE_libjpeg_SENTENCE
    "chorale: <jpeglib.h> or its library is missing (JPEG images). Try: apt-get install libjpeg62-turbo-dev (Debian), dnf install libjpeg-turbo-devel (Fedora), brew install jpeg-turbo (Homebrew) or vcpkg install libjpeg-turbo.")

set(CHORALE_PACKAGE_libpng_HEADER png.h)
set(CHORALE_PACKAGE_libpng_LIBRARIES png z)
set(CHORALE_PACKAGE_libpng_TARGET PNG::PNG)
set(CHORALE_PACKAGE_libpng_SENTENCE
    "chorale: <png.h> or its library is missing (PNG images). Try: apt-get install libpng-dev (Debian), dnf install libpng-devel (Fedora), brew install libpng (Homebrew) or vcpkg install libpng.")

set(CHORALE_PACKAGE_libtorch_HEADER torch/torch.h)
set(CHORALE_PACKAGE_libtorch_LIBRARIES torch_cpu c10)
set(CHORALE_PACKAGE_libtorch_FOLDER CHORALE_LIBTORCH)
set(CHORALE_PACKAGE_libtorch_SENTENCE
    "chorale: <torch/torch.h> or its library is missing (modules as models; a peer to compare with). Try: apt-get install libtorch-dev (Debian), dnf install python3-torch-devel (Fedora), brew install pytorch (Homebrew) or vcpkg install libtorch, or name its folder in the environment variable CHORALE_LIBTORCH.")

set(CHORALE_PACKAGE_cuda_HEADER cuda_runtime_api.h)
set(CHORALE_PACKAGE_cuda_LIBRARIES cudnn cublasLt cudart)
set(CHORALE_PACKAGE_cuda_FOLDER CUDA_HOME)
set(CHORALE_PACKAGE_cuda_FOLDERS /usr/local/cuda)
set(CHORALE_PACKAGE_cuda_SENTENCE
    "chorale: <cuda_runtime_api.h> or its library is missing (NVIDIA devices). Try: NVIDIA's CUDA toolkit with cuDNN, for all systems, in the folder that CUDA_HOME names, or vcpkg install cuda cudnn.")

set(CHORALE_PACKAGE_nccl_HEADER nccl.h)
set(CHORALE_PACKAGE_nccl_LIBRARIES nccl)
set(CHORALE_PACKAGE_nccl_FOLDER CUDA_HOME)
set(CHORALE_PACKAGE_nccl_FOLDERS /usr/local/cuda)
set(CHORALE_PACKAGE_nccl_SENTENCE
    "chorale: <nccl.h> or its library is missing (collectives between NVIDIA devices). Try: NVIDIA's NCCL, for all systems, in the folder that CUDA_HOME names, or vcpkg install nccl.")

set(CHORALE_PACKAGE_catch2_HEADER catch2/catch.hpp)
set(CHORALE_PACKAGE_catch2_SENTENCE
    "chorale: <catch2/catch.hpp> or its library is missing (tests). Try: apt-get install catch2 (Debian), dnf install catch-devel (Fedora), brew install catch2@2 (Homebrew) or vcpkg install catch2.")
