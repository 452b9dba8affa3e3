# frozen_string_literal: true

require "open3"
require "tmpdir"

module Bench
  # Rows of operations, each done a few and then many times. The process that does them and the one that counts share MARK, a system
  # call by which a row's count begins and ends.
  module Rows
    MARK = "getpriority"

    class << self
      # No collection takes part: what it costs depends on the rest of the heap.
      #
      # @param table [Hash{String => Proc}]
      # @param sizes [Array<Integer>] few and many
      def run(table, sizes, names)
        require "reactor"
        names.each do |name|
          GC.start
          GC.disable
          Fiber.set_scheduler(Reactor::Scheduler.new)
          sizes.each do |size|
            mark
            table.fetch(name).call(size)
            Fiber.scheduler.run
          end
          mark
          Fiber.set_scheduler(nil)
          GC.enable
        end
      end

      # Instructions of such a process from each mark to the next. Callgrind writes a file of what it has counted since the last one
      # before each mark. The first is from before the rows.
      def instructions(script, names, environment = {})
        Dir.mktmpdir do |folder|
          out = File.join(folder, "instructions")
          under(environment, script, names, "valgrind", "--tool=callgrind", "--dump-before=#{MARK}", "--callgrind-out-file=#{out}")
          Dir["#{out}.*"].sort_by { |path| path[/\d+\z/].to_i }.drop(1).map { |path| Integer(File.read(path)[/^summary: (\d+)/, 1]) } << 0
        end
      end

      # Runs it under another program.
      def under(environment, script, names, *wrapper)
        text, status = Open3.capture2e(environment, *wrapper, RbConfig.ruby, "-Ilib", script, *names)
        raise "under #{wrapper.first}: #{text}" unless status.success?
      end

      private

      def mark = Process.getpriority(Process::PRIO_PROCESS, 0)
    end
  end
end
