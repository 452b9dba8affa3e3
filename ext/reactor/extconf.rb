# frozen_string_literal: true

require "mkmf"
require "rb_sys/mkmf"

# One library per Ruby ABI, side by side: lib/reactor/3.3/reactor.so, lib/reactor/3.4/reactor.so.
create_rust_makefile("reactor/#{RUBY_VERSION[/\A\d+\.\d+/]}/reactor")

# RubyGems 4 runs make -j, and rb_sys up to 2025 cleans up while it builds (oxidize-rb/rb-sys#656). Cargo is parallel by itself.
File.write("Makefile", ".NOTPARALLEL:\n", mode: "a")
