# frozen_string_literal: true

require "json"
require_relative "waits"

module Fuzz
  # A program as data that JSON can hold.
  #
  # [ending]    "finish": every task comes to its end; "kill": the thread of the tasks that are left is killed
  # [conductor] "fiber" or "thread": what ends the waits
  # [handler]   what the handler of a signal does, as source text, or nil
  # [shares]    waits that several tasks have in common
  # [tasks]     a list of operations for each task
  #
  # An operation is a Hash; its `op` is one of wait, share, nap, raise, guard, timeout, enumerator, fiber, thread, lock, fork,
  # offload, keep, look, files, call.
  class Program
    # The lists of operations inside an operation, in the order in which they run.
    LISTS = { "guard" => %i[body ensure], "enumerator" => %i[before body after] }.freeze

    attr_reader :data

    class << self
      def parse(text) = new(JSON.parse(text, symbolize_names: true))

      # @return [Array<Symbol>] the keys of the lists of operations inside this one
      def lists(op) = LISTS.fetch(op[:op]) { op.key?(:body) ? %i[body] : [] }

      # @return [Boolean] whether a wait of this kind can be ended in this way
      def possible?(kind, what)
        wait = WAITS.fetch(kind)
        # A thread sleeps also while its child is made.
        return false if kind == "system" && %w[raise kill].include?(what)

        case what
        when "feed" then !wait.feed.nil?
        # A read that had begun gets EIO, and a read that begins now gets the end of the data.
        when "eof" then !wait.eof.nil? && !kind.start_with?("terminal.")
        # select(2) does not notice that another thread closes a descriptor.
        when "close" then !wait.io.nil? && !kind.end_with?(".select")
        when "reopen" then !wait.io.nil? && kind.match?(/\A(pipe|unix|fifo)\./) && !kind.match?(/\.(select|accept)\z/)
        else true
        end
      end

      # @param conductor [String]
      # @return [Boolean] whether such a wait can be ended while the handler of a signal waits for that end
      def handled?(kind, conductor)
        # A fiber that sends a signal to its own process runs the handler itself. And if the handler runs in the task's fiber,
        # the task writes no more until it ends, so a feed that reads all of it never ends.
        conductor == "thread" && !kind.end_with?(".write")
      end
    end

    def initialize(data)
      @data = data
    end

    def tasks = @data[:tasks]
    def shares = @data[:shares]
    def ending = @data[:ending]
    def to_s = JSON.generate(@data)
    def ==(other) = other.is_a?(Program) && data == other.data
    alias eql? ==
    def hash = data.hash

    # @return [Array<Hash>] each operation, also those inside others, in the order in which each task runs them
    def ops = [].tap { |found| tasks.each { |ops| walk(ops) { |op| found << op } } }

    # How large it is: operations, and what happens to them.
    def size = ops.sum { |op| 1 + (op[:by] || []).size } + tasks.size

    # Every wait ends, the tasks meet in their common waits in one order only, and a conductor that kills is not killed.
    def valid?
      tasks.any? && (ending == "finish" || data[:conductor] == "thread") && handled_as_possible? && tasks.all? { |ops| ended?(ops, ending == "kill") && numbers(ops).then { |found| found == found.uniq.sort } }
    end

    # Common waits that a single task is left in, or none, are no longer common.
    def tidy
      used = ops.filter_map { |op| op[:share] }.uniq.sort
      return self if used == [*0...shares.size]

      moved = used.each_with_index.to_h
      data = JSON.parse(to_s, symbolize_names: true)
      data[:shares] = used.map { |number| data[:shares][number] }
      Program.new(data).tap { |program| program.ops.each { |op| op[:share] = moved.fetch(op[:share]) if op[:share] } }
    end

    private

    def handled_as_possible?
      ops.all? { |op| (op[:by] || []).none? { |step| step[:handled] } || Program.handled?(op[:kind], data[:conductor]) }
    end

    # @param endless [Boolean] whether the last of these operations may be a wait that nothing ends
    # @param limited [Boolean] whether a limit around them ends such waits
    def ended?(ops, endless, limited: false)
      ops.each_with_index.all? do |op, index|
        within = limited || (op[:op] == "timeout" && op[:seconds] < 1) || op[:around] == "certain"
        next within || op[:seconds] || op[:by].any? || (endless && index == ops.size - 1) if op[:op] == "wait"

        Program.lists(op).all? { |list| ended?(op[list], false, limited: within) }
      end
    end

    def numbers(ops) = [].tap { |found| walk(ops) { |op| found << op[:share] if op[:share] } }

    def walk(ops, &block)
      ops.each do |op|
        yield op
        Program.lists(op).each { |list| walk(op[list], &block) }
      end
    end
  end
end
