# frozen_string_literal: true

# What an item of a collection costs among few and among many: instructions outside the kernel, counted by valgrind, for each of 300 and
# of 2,400 fibers, timers, tasks, watchers and so on. A cost that grows with their number is a defect.
#
#   ruby -Ilib bench/curves.rb                 fails if an item of any row costs over 1.3 times as much among many
#   ruby -Ilib bench/curves.rb closed errors   these rows only
#
# Without valgrind, or with too few descriptors, nothing is measured, and the exit status is 77.

require_relative "guard/curves"

module Bench
  module Curves
    SCRIPT = File.expand_path("guard/curves.rb", __dir__)
    MORE = 1.3 # times as many instructions
    DESCRIPTORS = 10_000
    UNAVAILABLE = 77

    class << self
      # @return [Integer] the exit status
      def run(names)
        if (reason = unavailable)
          puts "nothing is measured: #{reason}"
          return UNAVAILABLE
        end

        rows = names.empty? ? CURVES.keys : names
        growing = rows.zip(measure(rows)).filter_map { |row, figures| row if grows?(row, *figures) }
        puts growing.empty? ? "no item costs more among many" : "an item costs more among many: #{growing.join(", ")}"
        growing.empty? ? 0 : 1
      end

      private

      def unavailable
        return "valgrind is missing" unless system("valgrind", "--version", out: File::NULL, err: File::NULL)

        "fewer than #{DESCRIPTORS} descriptors" if Process.getrlimit(:NOFILE).last < DESCRIPTORS
      end

      # Two processes, each with every second row.
      def measure(rows)
        halves = rows.each_with_index.partition { |_, index| index.even? }.map { |half| half.map(&:first) }
        figures = halves.map { |half| Thread.new { half.zip(half.empty? ? [] : instructions(half)).to_h } }.map(&:value).reduce(:merge)
        figures.values_at(*rows)
      end

      def instructions(rows)
        Rows.instructions(SCRIPT, rows).each_slice(3).map { |few, many, _after| [few, many].zip(ITEMS).map { |count, items| count / items } }
      end

      def grows?(row, few, many)
        puts format("%-10s %8d instructions each, among many %8d (%.2f)", row, few, many, many.fdiv(few))
        many > few * MORE
      end
    end
  end
end

exit Bench::Curves.run(ARGV) if $PROGRAM_NAME == __FILE__
