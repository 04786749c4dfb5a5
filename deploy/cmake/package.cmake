# SPDX-License-Identifier: Apache-2.0
# What the Debian packages hold, and what CPack writes on them.  Included
# by the root CMakeLists.txt after the rooms; deploy/debian/make builds them.
#
#   tandem             tandemd, tandem-exec, units, configuration, man pages
#   tandemctl          the operator's program, for this or another machine
#   tandem-monitoring  rules, dashboards, runbooks of alerts
#   libtandem-dev      HTTP/3 client and flight recorder reader, for C
#   *-dbgsym           debug symbols of the first two
#
# libtandem is an archive and no shared library: no ABI is promised, and
# what the recorder wrote is read by the version that wrote it.
include(GNUInstallDirs)
set(CMAKE_SKIP_INSTALL_RPATH ON)
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON) # target package_files is enough

set(man ${CMAKE_BINARY_DIR}/man)
file(MAKE_DIRECTORY ${man})
set(TDM_PACKAGE_FILES "")

# tdm_man(<page> <program> [<argument>]) renders deploy/man/<page>.in.
macro(tdm_man page program)
  add_custom_command(OUTPUT ${man}/${page}.gz
    COMMAND ${CMAKE_SOURCE_DIR}/deploy/man/render ${CMAKE_SOURCE_DIR}/deploy/man/${page}.in
            ${PROJECT_VERSION} $<TARGET_FILE:${program}> ${ARGN} > ${man}/${page}
    COMMAND gzip -9nf ${man}/${page}
    DEPENDS ${program} deploy/man/render deploy/man/${page}.in VERBATIM)
  list(APPEND TDM_PACKAGE_FILES ${man}/${page}.gz)
endmacro()

tdm_man(tandemd.8 tandemd --help)
tdm_man(tandem.conf.5 tandemd --help-config)
tdm_man(tandemctl.1 tandemctl --help)
tdm_man(tandem.appliance.5 tandemctl appliance help)
add_custom_command(OUTPUT ${man}/changelog.gz
  COMMAND gzip -9nc ${CMAKE_SOURCE_DIR}/deploy/debian/changelog > ${man}/changelog.gz
  DEPENDS deploy/debian/changelog VERBATIM)
add_custom_command(OUTPUT ${man}/tandemctl.bash
  COMMAND tandemctl completion bash > ${man}/tandemctl.bash DEPENDS tandemctl VERBATIM)
set(dev_rooms net_client telemetry_flight telemetry_block abi base)
add_library(libtandem STATIC)
set_target_properties(libtandem PROPERTIES OUTPUT_NAME tandem LINKER_LANGUAGE C
  ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/dev)
foreach(room ${dev_rooms})
  target_sources(libtandem PRIVATE $<TARGET_OBJECTS:tdm_${room}>)
endforeach()
configure_file(deploy/debian/libtandem/tandem.pc.in ${CMAKE_BINARY_DIR}/dev/tandem.pc @ONLY)
add_custom_command(OUTPUT ${man}/libtandem.a
  COMMAND ${CMAKE_STRIP} --strip-debug --enable-deterministic-archives -o ${man}/libtandem.a $<TARGET_FILE:libtandem>
  DEPENDS libtandem VERBATIM)
add_custom_target(package_files ALL DEPENDS tandemd tandem-exec tandemctl ${man}/libtandem.a ${TDM_PACKAGE_FILES}
  ${man}/changelog.gz ${man}/tandemctl.bash)
add_dependencies(shipped package_files)

# Absolute folders below are Debian's, whatever the prefix of an installation
# by hand: packages are built with /usr.
set(libexec libexec/tandem)
install(TARGETS tandemd tandem-exec RUNTIME DESTINATION ${libexec} COMPONENT tandem)
install(PROGRAMS deploy/hugepages deploy/nic deploy/first-boot deploy/health deploy/fleet/agent
  DESTINATION ${libexec} COMPONENT tandem)
# tandemd looks for tandem-exec beside itself, behind this link.
file(CREATE_LINK ../${libexec}/tandemd ${man}/tandemd SYMBOLIC)
install(FILES ${man}/tandemd DESTINATION sbin COMPONENT tandem)
install(FILES ${man}/tandemd.8.gz DESTINATION share/man/man8 COMPONENT tandem)
install(FILES ${man}/tandem.conf.5.gz ${man}/tandem.appliance.5.gz DESTINATION share/man/man5 COMPONENT tandem)
install(FILES deploy/systemd/tandemd.service deploy/systemd/tandem-hugepages.service
  deploy/systemd/tandem-nic@.service deploy/systemd/tandem-agent.socket
  deploy/systemd/tandem-agent@.service deploy/systemd/tandem-first-boot.service
  deploy/systemd/tandem-health.service DESTINATION /lib/systemd/system COMPONENT tandem)
install(FILES deploy/systemd/tandem.sysusers DESTINATION lib/sysusers.d RENAME tandem.conf COMPONENT tandem)
install(FILES deploy/systemd/tandem.tmpfiles DESTINATION lib/tmpfiles.d RENAME tandem.conf COMPONENT tandem)
install(FILES deploy/debian/tandem.json DESTINATION /etc/tandem COMPONENT tandem)
install(FILES deploy/debian/tandem.default DESTINATION /etc/default RENAME tandem COMPONENT tandem)
install(DIRECTORY deploy/docs/ DESTINATION share/doc/tandem COMPONENT tandem)
install(DIRECTORY deploy/systemd/examples DESTINATION share/doc/tandem COMPONENT tandem)
install(FILES deploy/fleet/haproxy.cfg deploy/fleet/nginx-http3.conf DESTINATION share/doc/tandem/examples COMPONENT tandem)
install(DIRECTORY deploy/fleet/kubernetes DESTINATION share/doc/tandem/examples COMPONENT tandem)

install(TARGETS tandemctl RUNTIME DESTINATION bin COMPONENT tandemctl)
install(FILES ${man}/tandemctl.1.gz DESTINATION share/man/man1 COMPONENT tandemctl)
install(FILES ${man}/tandemctl.bash DESTINATION share/bash-completion/completions RENAME tandemctl
  COMPONENT tandemctl)

install(DIRECTORY deploy/monitoring/grafana deploy/monitoring/prometheus deploy/monitoring/runbooks
  DESTINATION share/tandem/monitoring COMPONENT tandem-monitoring)
install(FILES deploy/monitoring/README.md DESTINATION share/doc/tandem-monitoring COMPONENT tandem-monitoring)

foreach(room ${dev_rooms})
  get_target_property(headers tdm_${room} HEADER_SET)
  foreach(header ${headers})
    file(RELATIVE_PATH header ${CMAKE_SOURCE_DIR} ${header})
    get_filename_component(folder ${header} DIRECTORY)
    install(FILES ${header} DESTINATION include/tandem/${folder} COMPONENT libtandem-dev)
  endforeach()
endforeach()
install(FILES ${man}/libtandem.a DESTINATION lib/${CMAKE_LIBRARY_ARCHITECTURE} COMPONENT libtandem-dev)
install(FILES ${CMAKE_BINARY_DIR}/dev/tandem.pc DESTINATION lib/${CMAKE_LIBRARY_ARCHITECTURE}/pkgconfig COMPONENT libtandem-dev)
install(FILES deploy/debian/libtandem/ask.c DESTINATION share/doc/libtandem-dev/examples COMPONENT libtandem-dev)

foreach(component tandem tandemctl tandem-monitoring libtandem-dev)
  install(FILES deploy/debian/copyright ${man}/changelog.gz DESTINATION share/doc/${component}
    COMPONENT ${component})
endforeach()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME tandem)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "Tandem maintainers <maintainers@tandem.example.org>")
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR}/packages)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_COMPONENTS_ALL tandem tandemctl tandem-monitoring libtandem-dev)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SOURCE tandem)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)

set(CPACK_DEBIAN_TANDEM_PACKAGE_NAME tandem)
set(CPACK_DEBIAN_TANDEM_PACKAGE_SECTION net)
set(CPACK_DEBIAN_TANDEM_DESCRIPTION "LLM inference appliance
Serves a language model over HTTP/3 straight off a network card (DPDK) and
over HTTP/1.1, and keeps the latency of every token under a promise.

A GPU and its driver are used where they are; without them processors
compute.")
# DPDK loads its drivers by name, so that nothing links to them.
set(CPACK_DEBIAN_TANDEM_PACKAGE_DEPENDS
  "tandemctl (= ${PROJECT_VERSION}), mount, systemd | systemd-standalone-sysusers, systemd | systemd-standalone-tmpfiles, init-system-helpers (>= 1.54~), passwd, librte-mempool-ring23, librte-bus-pci23, librte-bus-vdev23, librte-net-af-packet23, librte-net-tap23")
set(CPACK_DEBIAN_TANDEM_PACKAGE_RECOMMENDS "libjs-chart.js, udev, kmod")
set(CPACK_DEBIAN_TANDEM_PACKAGE_SUGGESTS
  "tandem-monitoring, libcuda1, librte-net-af-xdp23, librte-net-ixgbe23, librte-net-i40e23, librte-net-ice23, librte-net-mlx5-23, librte-net-virtio23")
set(control ${CMAKE_SOURCE_DIR}/deploy/debian/tandem)
set(CPACK_DEBIAN_TANDEM_PACKAGE_CONTROL_EXTRA
  ${control}/conffiles ${control}/postinst ${control}/prerm ${control}/postrm)

set(CPACK_DEBIAN_TANDEMCTL_PACKAGE_NAME tandemctl)
set(CPACK_DEBIAN_TANDEMCTL_PACKAGE_SECTION admin)
set(CPACK_DEBIAN_TANDEMCTL_DESCRIPTION "operator's program of the Tandem inference appliance
Asks it, shows what it does and why, changes its live keys, drains it, and
plans, measures and replays load.")

set(CPACK_DEBIAN_TANDEM-MONITORING_PACKAGE_NAME tandem-monitoring)
set(CPACK_DEBIAN_TANDEM-MONITORING_PACKAGE_SECTION admin)
set(CPACK_DEBIAN_TANDEM-MONITORING_PACKAGE_ARCHITECTURE all)
set(CPACK_DEBIAN_TANDEM-MONITORING_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_TANDEM-MONITORING_PACKAGE_SUGGESTS "prometheus (>= 2.42), prometheus-alertmanager")
set(CPACK_DEBIAN_TANDEM-MONITORING_DESCRIPTION "Prometheus rules, dashboards and runbooks for Tandem
Recording and alerting rules for Prometheus, dashboards for Grafana, and a
page for each alert: what it means, where to look, what to do.")

set(CPACK_DEBIAN_LIBTANDEM-DEV_PACKAGE_NAME libtandem-dev)
set(CPACK_DEBIAN_LIBTANDEM-DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_LIBTANDEM-DEV_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_LIBTANDEM-DEV_PACKAGE_DEPENDS
  "libngtcp2-dev, libngtcp2-crypto-gnutls-dev, libnghttp3-dev, libgnutls28-dev")
set(CPACK_DEBIAN_LIBTANDEM-DEV_DESCRIPTION "client library of the Tandem inference appliance
An HTTP/3 client in C, and a reader of the flight recorder that an appliance
keeps of its iterations and requests.  An archive to link statically: the
interface may change with each version.")

# Debug symbols where the build has them.
if(CMAKE_BUILD_TYPE STREQUAL "RelWithDebInfo" AND NOT TDM_SANITIZE)
  set(CPACK_DEBIAN_TANDEM_DEBUGINFO_PACKAGE ON)
  set(CPACK_DEBIAN_TANDEMCTL_DEBUGINFO_PACKAGE ON)
endif()
set(CPACK_POST_BUILD_SCRIPTS ${CMAKE_SOURCE_DIR}/deploy/cmake/repack.cmake)
set(CPACK_TDM_REPACK ${CMAKE_SOURCE_DIR}/deploy/debian/repack)
include(CPack)
