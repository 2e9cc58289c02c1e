# Installs Wakeset: the program, the preload library, the C library, headers, manual, completions.
#
#   make                                   builds
#   make install PREFIX=/usr/local         builds and installs; DESTDIR= is put before each path
#   make uninstall PREFIX=/usr/local       removes what `make install` has put there
#   make install-debug                     as install, with the debug files of the program
#
# FROM=DIRECTORY installs what was built before, and builds nothing: wakeset, libwakeset_preload.so
# and libwakeset_c.a. As another user than the one who builds: `make`, then
# `sudo make install FROM=target/release`. Needs cargo, a C compiler, and objcopy(1).

PREFIX = /usr/local
DESTDIR =
BINDIR = $(PREFIX)/bin
LIBDIR = $(PREFIX)/lib
INCLUDEDIR = $(PREFIX)/include
DATADIR = $(PREFIX)/share
MANDIR = $(DATADIR)/man
# gdb(1) knows /usr/lib/debug.
DEBUGDIR = $(LIBDIR)/debug

CARGO = cargo
CC = cc
OBJCOPY = objcopy
FROM =
BUILT = $(or $(FROM),$(or $(CARGO_TARGET_DIR),target)/release)

# No path of the machine that builds gets into the binaries, so that two machines build the same.
# Where cargo's folder is a link, it is named in both ways. What separates the flags for cargo is no
# space, which a folder may have in its name.
CARGOS = $(or $(CARGO_HOME),$(HOME)/.cargo)
NOTHING =
SEPARATOR := $(shell printf '\037')
FLAGS = $(subst $(NOTHING) $(NOTHING),$(SEPARATOR),$(strip $(RUSTFLAGS)))
REMAP = --remap-path-prefix=$(CURDIR)=/usr/src/wakeset$(SEPARATOR)$\
	--remap-path-prefix=$(CARGOS)=/usr/src/cargo$(SEPARATOR)$\
	--remap-path-prefix=$(shell realpath -m '$(CARGOS)')=/usr/src/cargo

PACKAGES = -p wakeset-cli -p wakeset-preload -p wakeset-c
DIRECTORIES = PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' BINDIR='$(BINDIR)' LIBDIR='$(LIBDIR)' \
	INCLUDEDIR='$(INCLUDEDIR)' DATADIR='$(DATADIR)' MANDIR='$(MANDIR)' DEBUGDIR='$(DEBUGDIR)' \
	CC='$(CC)' OBJCOPY='$(OBJCOPY)'

.PHONY: all install install-debug uninstall
all:
ifeq ($(FROM),)
	WAKESET_LIBDIR='$(LIBDIR)/wakeset' \
	CARGO_ENCODED_RUSTFLAGS='$(if $(FLAGS),$(FLAGS)$(SEPARATOR))$(REMAP)' \
	$(CARGO) build --release $(PACKAGES)
endif

install: all
	$(DIRECTORIES) packaging/install '$(BUILT)'

install-debug: all
	$(DIRECTORIES) DEBUG=1 packaging/install '$(BUILT)'

uninstall:
	$(DIRECTORIES) packaging/uninstall
