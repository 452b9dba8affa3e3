# frozen_string_literal: true

require_relative "helper"
require "net/http"
require_relative "../../examples/metrics"

# examples/metrics.rb: a Prometheus text page.
class TestMetrics < ReactorTest
  Sample = Struct.new(:name, :labels, :value)

  # The text format, version 0.0.4: [types by family, samples]. A line that is not of the format fails.
  def parse(page)
    assert page.end_with?("\n")
    helped, types, samples = {}, {}, []
    page.each_line(chomp: true) do |line|
      case line
      when /\A# HELP ([a-z_]+) (\S.*)\z/ then helped[$1] = $2
      when /\A# TYPE ([a-z_]+) (counter|gauge|histogram)\z/
        assert helped.key?($1), "#{$1} has no HELP before its TYPE"
        refute types.key?($1), "two families #{$1}"
        types[$1] = $2
      when /\A([a-z_]+)\{((?:[a-z]+="[^"\\]*",?)+)\} ([-+.\de]+)\z/
        name, labels, value = $1, $2, $3
        family = types.keys.last
        suffixes = types[family] == "histogram" ? %w[_bucket _sum _count] : [""]
        assert_includes suffixes.map { |suffix| family + suffix }, name, "a sample stands below its family"
        samples << Sample.new(name, labels.scan(/(\w+)="([^"]*)"/).to_h, Float(value))
      else flunk "not a line of the format: #{line}"
      end
    end
    [types, samples]
  end

  def check_histograms(types, samples)
    types.select { |_, type| type == "histogram" }.each_key do |name|
      samples.group_by { |sample| sample.labels["scheduler"] }.each_value do |own|
        buckets = own.select { |sample| sample.name == "#{name}_bucket" }
        bounds = buckets.map { |bucket| bucket.labels["le"] == "+Inf" ? Float::INFINITY : Float(bucket.labels["le"]) }
        assert_equal bounds.uniq.sort, bounds
        assert_predicate bounds.last, :infinite?
        assert_equal buckets.map(&:value).sort, buckets.map(&:value), "cumulative"
        assert_equal buckets.last.value, own.find { |sample| sample.name == "#{name}_count" }.value
        assert own.any? { |sample| sample.name == "#{name}_sum" }
      end
    end
  end

  def test_the_page_of_two_schedulers_is_in_the_text_format
    run_scheduler do |scheduler|
      made = Thread::Queue.new
      other = Thread.new do
        Fiber.set_scheduler(Reactor::Scheduler.new)
        made << Fiber.scheduler
        Fiber.schedule { sleep }
        Fiber.scheduler.run
      end
      metrics = Metrics.new(scheduler, made.pop)
      Fiber.schedule do
        sleep 0.001 until metrics.page.scan(/^reactor_fibers_waiting\{.*hook="sleep"\} 1$/).size == 1
        types, samples = parse(metrics.page)
        check_histograms(types, samples)
        ours = samples.select { |sample| sample.labels["scheduler"] == scheduler.object_id.to_s }
        assert_equal samples.size, 2 * ours.size
        assert_equal 1, ours.find { |sample| sample.name == "reactor_fibers" }.value
      end
      scheduler.run
    ensure
      other&.kill&.join
    end
  end

  def test_the_example_serves_the_page
    ended = run_example("examples/metrics.rb", signal: :TERM) do |line|
      address = line[%r{http://\S+}]
      answer = Net::HTTP.get_response(URI(address))
      assert_equal ["200", Metrics::TYPE], [answer.code, answer["content-type"]]
      types, samples = parse(answer.body)
      check_histograms(types, samples)
      assert_equal [BACKEND.to_s], samples.map { |sample| sample.labels["backend"] }.uniq
      assert_equal "404", Net::HTTP.get_response(URI(address.sub("metrics", "x"))).code
    end
    assert_equal [0, ""], ended
  end
end
