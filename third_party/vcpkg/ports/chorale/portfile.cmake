# SPDX-License-Identifier: Apache-2.0
# vcpkg install chorale --overlay-ports=third_party/vcpkg/ports: this checkout, as a port. Only the form is tested.
set(VCPKG_BUILD_TYPE release)                                              # headers
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../../.." ABSOLUTE)

vcpkg_cmake_configure(SOURCE_PATH "${SOURCE_PATH}" OPTIONS -DCHORALE_BUILD_TESTS=OFF)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(PACKAGE_NAME chorale CONFIG_PATH share/cmake/chorale)
vcpkg_fixup_pkgconfig()
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
file(INSTALL "${CMAKE_CURRENT_LIST_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
