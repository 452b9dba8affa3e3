# frozen_string_literal: true

module Fuzz
  # Descriptors, threads and children of this process that a program has left.
  class Leftovers
    LIMIT = 5 # seconds in which a thread that is about to end, ends

    def initialize
      @descriptors = descriptors
      @threads = Thread.list
    end

    # @param ios [Integer] IO objects that the program had not closed
    # @return [Hash] it can be written as JSON
    def found(ios = 0)
      limit = now + LIMIT
      sleep 0.001 until threads.empty? || now > limit
      children = Process.waitall.size # after the threads, because those of Process.detach wait for children as well
      # A collection may miss an object whose address is still on a stack.
      (GC.start; sleep 0.001) until surplus.empty? || now > limit
      { "ios" => ios, "descriptors" => surplus, "threads" => threads.size, "children" => children }
    end

    private

    # Ruby's own thread of Timeout stays.
    def threads = Thread.list.reject { |thread| @threads.include?(thread) || thread.name.to_s.include?("Timeout") }

    # @return [Array<String>] their kinds
    def surplus = (descriptors - @descriptors).map { |_, target| target[/\A[^:\[]*/] }.sort

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    def descriptors
      return [] unless File.directory?("/proc/self/fd")

      Dir.children("/proc/self/fd").filter_map { |number| [number, File.readlink("/proc/self/fd/#{number}")] rescue nil }
    end
  end
end
