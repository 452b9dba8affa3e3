# frozen_string_literal: true

# What idle connections cost, in a task each and at rest (Scheduler#on_ready): rows of bin/bench, with more connections than it tries
# by itself. Options are those of bin/bench, for example --targets epoll.
require "rbconfig"

ROWS = %w[parked rest_memory parked_collection rest_collection wakeup rest_wakeup parked_cpu rest_cpu rest_accept].freeze

exec(RbConfig.ruby, "-w", File.join(__dir__, "harness/main.rb"), "--most", "18000", *ROWS, *ARGV)
