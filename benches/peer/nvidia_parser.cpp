// The peer that benches/run.py compares with: NVIDIA's ONNX parser and builder for TensorRT-RTX, and nothing around them.
//
//   nvidia_parser [--parse-only] [--sm N] [--lib-dir DIR] [--shape NAME=MIN..OPT..MAX]... MODEL.onnx
//   nvidia_parser --supports [--lib-dir DIR] MODEL.onnx
//
// Parses the file, builds one engine for the given compute capability (no GPU needed) and prints one JSON line. Dynamic
// dims that no --shape covers get the range 1..4..8. With --supports it says instead into which subgraphs supportsModelV2
// splits the model. Exit: 0 done, 1 the parser or builder refused, 2 bad usage, 3 no library.

#include <NvInfer.h>
#include <NvOnnxParser.h>

#include <dlfcn.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace {

using nvinfer1::Dims;
using nvinfer1::OptProfileSelector;

constexpr OptProfileSelector kSelectors[] = {
    OptProfileSelector::kMIN, OptProfileSelector::kOPT, OptProfileSelector::kMAX};
constexpr int64_t kDefaultRange[] = {1, 4, 8};

struct Usage {
    std::string what;
};
struct MissingLibrary {
    std::string what;
};

// Min, opt and max of one input.
using Range = std::vector<Dims>;

struct Options {
    std::string model;
    std::string lib_dir = ".sdk/lib";
    int sm = 89;
    bool parse_only = false;
    bool supports = false;
    std::map<std::string, Range> shapes;
};

// Nodes by index in the model's own order.
struct Subgraph {
    bool supported = false;
    std::vector<int64_t> nodes;
};

struct Result {
    bool parse_ok = false;
    bool build_ok = false;
    double load_s = 0, parse_s = 0, build_s = 0;
    int layers = 0;
    size_t engine_bytes = 0;
    std::string error;
    std::vector<Subgraph> subgraphs;
};

class Stopwatch {
public:
    double seconds() const {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    }

private:
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

class Logger : public nvinfer1::ILogger {
public:
    void log(Severity severity, char const* text) noexcept override {
        if (severity > Severity::kERROR) return;
        fprintf(stderr, "%s\n", text);
        if (first_error.empty()) first_error = text;
    }
    std::string first_error;
};

Dims parse_dims(std::string const& text) {
    Dims dims{};
    size_t at = 0;
    while (at < text.size()) {
        size_t used = 0;
        if (dims.nbDims == Dims::MAX_DIMS) throw Usage{"too many dims: " + text};
        try {
            dims.d[dims.nbDims++] = std::stoll(text.substr(at), &used);
        } catch (std::exception const&) {
            throw Usage{"no dim: " + text};
        }
        at += used;
        if (at < text.size() && text[at++] != 'x') throw Usage{"dims are separated by x: " + text};
    }
    return dims;
}

void parse_shape(std::string const& text, Options& options) {
    // From the right: an input's name may hold '='.
    size_t const equals = text.rfind('=');
    if (equals == std::string::npos) throw Usage{"--shape wants NAME=MIN..OPT..MAX: " + text};
    Range range;
    size_t at = equals + 1;
    for (int i = 0; i < 3; ++i) {
        size_t const end = text.find("..", at);
        range.push_back(parse_dims(text.substr(at, end == std::string::npos ? end : end - at)));
        if (end == std::string::npos) break;
        at = end + 2;
    }
    if (range.size() == 1) range.resize(3, range[0]);
    if (range.size() != 3) throw Usage{"--shape wants one shape, or three: " + text};
    options.shapes[text.substr(0, equals)] = range;
}

Options parse_options(int argc, char** argv) {
    Options options;
    for (int i = 1; i < argc; ++i) {
        std::string const flag = argv[i];
        auto value = [&]() -> std::string {
            if (i + 1 == argc) throw Usage{flag + " wants a value"};
            return argv[++i];
        };
        if (flag == "--parse-only") options.parse_only = true;
        else if (flag == "--supports") options.supports = true;
        else if (flag == "--sm") options.sm = atoi(value().c_str());
        else if (flag == "--lib-dir") options.lib_dir = value();
        else if (flag == "--shape") parse_shape(value(), options);
        else if (flag.rfind("--", 0) == 0) throw Usage{"unknown option " + flag};
        else if (options.model.empty()) options.model = flag;
        else throw Usage{"one model at a time"};
    }
    if (options.model.empty()) throw Usage{"which model?"};
    return options;
}

void* open_library(std::string const& path) {
    // The parser finds the core library's symbols only when those are global.
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (!handle) throw MissingLibrary{dlerror()};
    return handle;
}

template <typename Function>
Function* symbol(void* library, char const* name) {
    void* found = dlsym(library, name);
    if (!found) throw MissingLibrary{dlerror()};
    return reinterpret_cast<Function*>(found);
}

// Adds a profile when an input is dynamic. Returns false when TensorRT refuses a range.
bool add_profile(nvinfer1::IBuilder& builder, nvinfer1::INetworkDefinition const& network,
    nvinfer1::IBuilderConfig& config, Options const& options) {
    nvinfer1::IOptimizationProfile* profile = nullptr;
    size_t used = 0;
    for (int i = 0; i < network.getNbInputs(); ++i) {
        auto const* input = network.getInput(i);
        Dims const dims = input->getDimensions();
        bool dynamic = false;
        for (int d = 0; d < dims.nbDims; ++d) dynamic |= dims.d[d] < 0;
        if (!dynamic) continue;
        if (!profile) profile = builder.createOptimizationProfile();
        auto const given = options.shapes.find(input->getName());
        used += given != options.shapes.end();
        for (int s = 0; s < 3; ++s) {
            Dims chosen = given != options.shapes.end() ? given->second[s] : dims;
            if (chosen.nbDims != dims.nbDims) throw Usage{std::string("--shape has another rank: ") + input->getName()};
            for (int d = 0; d < dims.nbDims; ++d)
                if (chosen.d[d] < 0) chosen.d[d] = kDefaultRange[s];
            if (!profile->setDimensions(input->getName(), kSelectors[s], chosen)) return false;
        }
    }
    if (used != options.shapes.size()) throw Usage{"--shape names no dynamic input of the model"};
    return !profile || config.addOptimizationProfile(profile) >= 0;
}

// The subgraphs of supportsModelV2, in its order.
std::vector<Subgraph> split(nvonnxparser::IParser& parser, std::string const& path) {
    std::ifstream file{path, std::ios::binary};
    if (!file) throw Usage{"cannot open " + path};
    std::string const model{std::istreambuf_iterator<char>{file}, {}};
    parser.supportsModelV2(model.data(), model.size(), path.c_str());
    std::vector<Subgraph> subgraphs;
    for (int64_t i = 0; i < parser.getNbSubgraphs(); ++i) {
        int64_t length = 0;
        int64_t const* nodes = parser.getSubgraphNodes(i, length);
        subgraphs.push_back({parser.isSubgraphSupported(i), {nodes, nodes + length}});
    }
    return subgraphs;
}

Result run(Options const& options, Logger& logger) {
    Result result;
    Stopwatch const loading;
    void* core = open_library(options.lib_dir + "/libtensorrt_rtx.so.1");
    void* parsers = open_library(options.lib_dir + "/libtensorrt_onnxparser_rtx.so.1");
    auto* create_builder = symbol<void*(void*, int32_t)>(core, "createInferBuilder_INTERNAL");
    auto* create_parser = symbol<void*(void*, void*, int)>(parsers, "createNvOnnxParser_INTERNAL");
    std::unique_ptr<nvinfer1::IBuilder> builder{
        static_cast<nvinfer1::IBuilder*>(create_builder(&logger, NV_TENSORRT_VERSION))};
    if (!builder) throw MissingLibrary{"no builder: " + logger.first_error};
    // No flags: networks of this version are strongly typed anyway.
    std::unique_ptr<nvinfer1::INetworkDefinition> network{builder->createNetworkV2(0)};
    std::unique_ptr<nvinfer1::IBuilderConfig> config{builder->createBuilderConfig()};
    config->setNbComputeCapabilities(1);
    config->setComputeCapability(static_cast<nvinfer1::ComputeCapability>(options.sm), 0);
    std::unique_ptr<nvonnxparser::IParser> parser{
        static_cast<nvonnxparser::IParser*>(create_parser(network.get(), &logger, NV_ONNX_PARSER_VERSION))};
    if (!parser) throw MissingLibrary{"no parser: " + logger.first_error};
    result.load_s = loading.seconds();

    if (options.supports) {
        result.subgraphs = split(*parser, options.model);
        return result;
    }

    Stopwatch const parsing;
    auto const severity = static_cast<int>(nvinfer1::ILogger::Severity::kERROR);
    result.parse_ok = parser->parseFromFile(options.model.c_str(), severity);
    result.parse_s = parsing.seconds();
    result.layers = network->getNbLayers();
    if (!result.parse_ok && parser->getNbErrors() > 0) {
        auto const* error = parser->getError(0);
        bool const at_node = error->nodeOperator()[0] != '\0';
        result.error = at_node ? std::string(error->nodeOperator()) + " " + error->nodeName() + ": " : "";
        result.error += error->desc();
    }
    if (!result.parse_ok || options.parse_only) return result;

    Stopwatch const building;
    if (add_profile(*builder, *network, *config, options)) {
        std::unique_ptr<nvinfer1::IHostMemory> engine{builder->buildSerializedNetwork(*network, *config)};
        result.build_ok = engine != nullptr;
        result.engine_bytes = engine ? engine->size() : 0;
    }
    result.build_s = building.seconds();
    if (!result.build_ok) result.error = logger.first_error;
    return result;
}

std::string quoted(std::string const& text) {
    std::string out = "\"";
    for (unsigned char c : text) {
        if (c == '"' || c == '\\') out += '\\';
        if (c >= 0x20) out += static_cast<char>(c);
        else if (char hex[8]; snprintf(hex, sizeof hex, "\\u%04x", c) > 0) out += hex;
    }
    return out + "\"";
}

std::string listed(std::vector<Subgraph> const& subgraphs) {
    std::string out = "[";
    for (auto const& subgraph : subgraphs) {
        out += out.size() > 1 ? "," : "";
        out += subgraph.supported ? "{\"supported\":true,\"nodes\":[" : "{\"supported\":false,\"nodes\":[";
        for (size_t i = 0; i < subgraph.nodes.size(); ++i) out += (i ? "," : "") + std::to_string(subgraph.nodes[i]);
        out += "]}";
    }
    return out + "]";
}

}  // namespace

int main(int argc, char** argv) {
    // The builder prints warnings of its own to stdout; keep that for the result.
    FILE* out = fdopen(dup(STDOUT_FILENO), "w");
    dup2(STDERR_FILENO, STDOUT_FILENO);
    try {
        Options const options = parse_options(argc, argv);
        Logger logger;
        Result const r = run(options, logger);
        if (options.supports) {
            fprintf(out, "{\"model\":%s,\"subgraphs\":%s}\n", quoted(options.model).c_str(),
                listed(r.subgraphs).c_str());
            fclose(out);
            return 0;
        }
        rusage usage{};
        getrusage(RUSAGE_SELF, &usage);
        auto const truth = [](bool value) { return value ? "true" : "false"; };
        fprintf(out,
            "{\"model\":%s,\"load_s\":%.4f,\"parse_ok\":%s,\"parse_s\":%.6f,\"layers\":%d,\"build_ok\":%s,\"build_s\":%.4f,"
            "\"engine_bytes\":%zu,\"peak_rss_kb\":%ld,\"error\":%s}\n",
            quoted(options.model).c_str(), r.load_s, truth(r.parse_ok), r.parse_s, r.layers, truth(r.build_ok), r.build_s,
            r.engine_bytes, usage.ru_maxrss, r.error.empty() ? "null" : quoted(r.error).c_str());
        fclose(out);
        return r.parse_ok && (r.build_ok || options.parse_only) ? 0 : 1;
    } catch (Usage const& usage) {
        fprintf(stderr, "nvidia_parser: %s\n", usage.what.c_str());
        return 2;
    } catch (MissingLibrary const& missing) {
        fprintf(stderr, "nvidia_parser: %s\n", missing.what.c_str());
        return 3;
    }
}
