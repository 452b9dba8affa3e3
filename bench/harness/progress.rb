# frozen_string_literal: true

module Bench
  # What a person sees meanwhile: on a terminal one line that changes, and a line for each row that is done.
  class Progress
    def initialize(total, out: $stderr)
      @total = total
      @out = out
      @done = 0
      @started = clock
    end

    # Announces a run, and yields to it. A round of nil is the counting of system calls.
    def step(cell, round)
      say "[#{@done}/#{@total}#{remaining}] #{name(cell)}: #{cell.target.label}, #{round ? "round #{round + 1}" : 'system calls'}"
      failure = cell.failure
      yield
      @done += 1 if round
      complain(cell) if cell.failure && !failure
    end

    # A row at one size is complete.
    def row(cells)
      clear
      ran = cells.reject { |cell| cell.samples.empty? }
      figures = ran.map { |cell| "#{cell.target.name} #{Format.figure(Bench.median(cell.values))}" }
      @out.puts "#{name(cells.first)} (#{cells.first.row.unit}): #{figures.join('  ')}"
    end

    # How long it all took, in seconds.
    def elapsed = clock - @started

    private

    def name(cell) = cell.point ? "#{cell.row.name} N=#{Format.count(cell.point)}" : cell.row.name

    def complain(cell)
      clear
      @out.puts "#{cell.failure.state.to_s.upcase}: #{name(cell)}, #{cell.target.label}: #{cell.failure.words}"
    end

    def remaining
      return if @done < 3

      left = (elapsed / @done * (@total - @done)).round
      format(", %<minutes>d:%<seconds>02d left", minutes: left / 60, seconds: left % 60)
    end

    def say(text)
      return unless @out.tty?

      clear
      @out.print text
    end

    def clear = (@out.print "\r\e[K" if @out.tty?)

    def clock = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end
