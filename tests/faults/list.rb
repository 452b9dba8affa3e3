# frozen_string_literal: true

module Faults
  # The rows of the list of calls.
  module List
    ROWS = File.readlines(File.join(__dir__, "calls"), chomp: true).map { |line| line[/\A[^#]*/].strip }.reject(&:empty?)
    ERRORS = ROWS.grep(/\A[\w ]+:/).to_h { |line| line.split(":").then { |call, errors| [call, errors.split.grep(/\AE/)] } }
    ERRORS.values.flatten.each { |name| Errno.const_get(name) } # or a typing error would only be a fault that is never made
    LATER = ROWS.grep(/ @/).to_h { |line| [line[/\A[\w ]+/], line[/@(.*)/, 1]] }.select { |_, ruby| RUBY_VERSION < ruby }
    KEPT = ROWS.grep(/\A[\w ]+ - /).map { |line| line.split(" - ").first }

    class << self
      def missing(calls) = calls - ERRORS.keys - KEPT

      # All that can be made on this Ruby.
      def pairs = ERRORS.except(*LATER.keys).flat_map { |call, errors| [call].product(errors) }

      # As "epoll_ctl ADD EPERM ENOENT" for each call.
      def describe(pairs) = pairs.group_by(&:first).map { |call, group| "#{call} #{group.map(&:last).join(" ")}" }
    end
  end
end
